"""Checks whether the engine answers and serves what it should, and logs each change.

An engine that is there, but answers not even a one-token request, is asked for one again until it does.

When the engine comes back, and every few seconds, it is asked again what it serves, because it may have been restarted with
another model.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from app import clock
from app.engines import adoption
from app.engines.adoption import DOWN, PRIORITY, UNSEEN, Contradiction, EngineProblem, Sighting
from app.engines.catalogue import Model
from app.engines.client import EngineAway, EngineClient
from app.engines.engine_report import Facts
from app.engines.outcome import Doubt, EngineDown
from app.engines.page_problems import problem_of
from workers.gpu.item_runner import ItemRunner
from workers.gpu.recovery_time import RecoveryTime
from workers.gpu.rest import Rest
from workers.gpu.tuning import TUNING, WorkerTuning

log = structlog.get_logger()


class EngineHealth:
    """`problem`: why nothing may be sent to the engine; None if requests may. `window`: the context window that it must have."""

    def __init__(
        self,
        client: EngineClient,
        runner: ItemRunner,
        model: Model,
        mode: str,
        comeback: RecoveryTime,
        tuning: WorkerTuning = TUNING,
        on_slots: Callable[[int | None], None] = lambda slots: None,
        rest: Rest | None = None,
    ) -> None:
        self._rest = rest or Rest()
        self._tuning = tuning
        self._managed = mode == "managed"
        self.problem: EngineProblem | None = adoption.away(managed=self._managed)
        self.window = model.context_window
        self.comeback = comeback
        self._client = client
        self._runner = runner
        self._model = model
        self._seen: Sighting = UNSEEN
        self._looked_at = 0.0
        self._logged: str | None = None  # the code of the last problem that was logged
        self._on_slots = on_slots
        self._refuses: EngineProblem | None = None  # how it answers one-token requests, while it refuses them
        self._lacking: tuple[EngineProblem, ...] = ()  # the shortcomings that were logged

    @property
    def fault(self) -> str | None:
        """The code of the problem."""
        return self.problem.code if self.problem else None

    @property
    def lack(self) -> tuple[int, int] | None:
        """The engine's context window and the one it must have, if that is the problem."""
        theirs = self._seen.windows.get(self._runner.target.model)
        return (theirs, self.window) if self.fault == adoption.TOO_SMALL and theirs is not None else None

    def expect(self, window: int) -> None:
        """Set the context window, in tokens, that the engine must have."""
        self.window = window
        if self.problem is None:
            self._change(adoption.fault(self._model, self._seen, window))

    def lost(self) -> None:
        """A request found the engine dead. Nothing is sent until the next good health check."""
        if self.problem is None:
            self.comeback.lost()
        self.problem = adoption.away(managed=self._managed)

    def doubted(self, down: EngineDown) -> None:
        """It answers nobody's requests, as a one-token request has shown. Nothing is sent until one is answered."""
        assert down.refusal is not None
        self._rest.stir()
        self.problem = self._refuses = _refusal(down)

    def facts(self, *, inside: bool, obstacle: str | None = None) -> Facts:
        """The known facts of the engine. `inside`: its own scheduler protects synchronous requests. `obstacle`: the code of
        why it does not, although somebody asked for it.
        """
        seen, name = self._seen, self._runner.target.model
        shortcomings = () if self._managed else adoption.shortcomings(seen, inside=inside)
        if obstacle is not None and not self._managed:
            shortcomings += (problem_of(obstacle),)
        return Facts(
            served_name=name if name != self._model.served else None,
            serves=seen.names,
            max_model_len=seen.windows.get(name),
            version=seen.version,
            scheduling_policy=PRIORITY if self._managed else seen.policy,
            protection="inside" if inside else "outside",
            problems=(self.problem,) if self.problem else shortcomings,
            dialect=seen.terms.dialect.name,
        )

    async def run(self) -> None:
        """Check until cancelled."""
        began, logged = clock.monotonic(), self._managed  # a managed engine logs its own start
        while True:
            self._change(await self._ask())
            if self.fault != DOWN:
                logged = True
            elif not logged and clock.monotonic() - began >= self._tuning.unreachable_seconds:
                log.warning("engine.not_reachable", url=self._client.url)
                logged = True
            await self._rest.pause(self._tuning.health_seconds)

    async def _ask(self) -> EngineProblem | None:
        if not await self._client.healthy():
            return adoption.away(managed=self._managed)
        due = self.problem is not None or clock.monotonic() - self._looked_at >= self._tuning.inspection_seconds
        if due and (problem := await self._look()) is not None:
            return problem
        return await self._still_refuses() if self._refuses is not None else None

    async def _still_refuses(self) -> EngineProblem | None:
        failure = await self._runner.probe.failure(clock.monotonic())
        if isinstance(failure, EngineDown):
            self._refuses = _refusal(failure)
        elif failure is None:
            self._refuses = None
        return self._refuses

    async def _look(self) -> EngineProblem | None:
        """Ask what the engine serves, and use its own name for the model from now on."""
        self._looked_at = clock.monotonic()
        try:
            self._seen = await self._client.look()
        except EngineAway:
            return self.problem  # what was last known still holds: it is busy, or was not read yet
        except Contradiction as error:
            return error.problem
        self._heed(self._seen)
        problem = adoption.fault(self._model, self._seen, self.window)
        name, target = self._model.name_at(self._seen.names), self._runner.target
        if name is not None and name != target.model:
            log.info("engine.serves", name=name, catalogue=self._model.served)
            self._runner.target = replace(target, model=name)
        return problem

    def _heed(self, seen: Sighting) -> None:
        """Speak the engine's dialect from now on, and log the flags that it lacks."""
        terms = self._runner.target.terms
        if seen.terms != terms:
            log.info("engine.dialect", dialect=seen.terms.dialect.name, batch_priority=seen.terms.batch_priority)
            self._runner.target = replace(self._runner.target, terms=seen.terms)
        self._on_slots(seen.slots)
        lacking = () if self._managed else adoption.shortcomings(seen)
        for lack in set(lacking) - set(self._lacking):
            log.warning("engine.lacks_flag", reason=lack.code, problem=lack.message, remedy=lack.remedy)
        self._lacking = lacking

    def _change(self, problem: EngineProblem | None) -> None:
        code = problem.code if problem else None
        if code != self.fault:
            self._rest.stir()
        if self.fault and problem is None:
            self.comeback.answers()
            log.info("engine.up", url=self._client.url)
        elif code == DOWN and self.fault != DOWN:
            self.comeback.lost()
            log.warning("engine.not_healthy", url=self._client.url, reason=code)
        elif problem is not None and code not in (DOWN, self._logged):
            log.error("engine.refused", reason=code, problem=problem.message, remedy=problem.remedy)
        self._logged = code
        self.problem = problem


def _refusal(down: EngineDown) -> EngineProblem:
    """The problem of an engine that refuses a one-token request."""
    refusal = down.refusal
    if isinstance(refusal, Doubt) and refusal.refuses_key:
        return adoption.key_refused(401)
    return adoption.unusable(down.reason)
