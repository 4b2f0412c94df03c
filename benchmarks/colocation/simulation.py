"""One run on a simulated clock: synchronous callers, the batch worker of an arm, and one engine.

The engine works in steps. An event during a step has its own time, but the engine learns of it after the step, as vLLM
does. The backlog of batch work has no end. A yielded request returns to the head of the backlog with its tokens.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from benchmarks.colocation.policy_arms import Arm
from benchmarks.colocation.run_samples import RunSamples
from benchmarks.colocation.simulated_engine import SimulatedEngine, SimulatedRequest
from benchmarks.colocation.simulation_view import Conditions
from benchmarks.colocation.workloads import Arrival, Workload
from testing.bare_scheduler import BATCH, SYNC
from workers.engine.step_sharing import HarvestMixin
from workers.gpu.requests_in_engine import MOST_YIELDS

MESSAGE_SECONDS = 1e-3  # from the gateway to the worker
RESTART_SECONDS = 5.0
CROWD = 240  # plans are timed with at least this many requests in the engine, because the target is about full engines
OVERTIME = 2.0  # a run ends when every caller is served, at the latest after this many times its length


@dataclass(slots=True)
class UsefulTokens:
    """Batch tokens while the workload lasts. A prompt counts once, with its first output token."""

    prompt: int = 0
    output: int = 0
    wasted: int = 0


@dataclass(eq=False)
class Simulation:
    """Call `run` once. `now`: the simulated second. `live`: batch requests in the engine, by number."""

    arm: Arm
    workload: Workload
    arrivals: list[Arrival]
    seed: int = 1
    conditions: Conditions = field(default_factory=Conditions)

    def __post_init__(self) -> None:
        self.now = 0.0
        self.live: dict[int, SimulatedRequest] = {}
        self.useful = UsefulTokens()
        self.yields = 0
        self.up = True
        self._backlog: deque[SimulatedRequest] = deque()
        self._leaving: list[SimulatedRequest] = []
        self._numbers = itertools.count(1)
        self._sizes = Random(f"{self.seed} batch sizes")
        self._noise = Random(f"{self.seed} step times")
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._open: dict[int, SimulatedRequest] = {}
        self._ttft: list[float] = []
        self._itl: list[float] = []
        self._plans: list[float] = []
        self._unserved = 0
        self._stopped_engines: list[SimulatedEngine] = []
        self.engine = self._start_engine()
        for arrival in self.arrivals:
            self.at(arrival.at, lambda arrival=arrival: self._arrive(arrival))  # type: ignore[misc]
        if self.conditions.restart:
            self.at(self.workload.seconds / 2, self._restart)
        self.worker = self.arm.worker(self)

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at the simulated second `when`."""
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(self) -> RunSamples:
        """Run until every caller is served, or overtime ends."""
        while not self._over():
            self._run_events(self.now)
            self._leave()
            self.admit()
            if self.up and self.engine.busy:
                self._step()
            else:
                self.now = self._events[0][0] if self._events else self.workload.seconds + 1e-9
        self._unserved += len(self._open)
        return self._outcome()

    def yield_batch(self, count: int) -> None:
        """Take the requests with the least progress back from the engine, after its present step."""
        able = [item for item in self.live.values() if item.yields < MOST_YIELDS]
        for item in sorted(able, key=lambda item: (item.made, -item.number))[:count]:
            del self.live[item.number]
            item.yields += 1
            self.yields += 1
            self._leaving.append(item)

    def admit(self) -> None:
        """Send batch requests to the engine until the worker refuses one."""
        while self.up and self.worker.may_admit(self._next_item()):
            item = self._backlog.popleft()
            self.live[item.number] = item
            self.engine.add(item, self.now)
            self.worker.admitted(item)

    def _next_item(self) -> SimulatedRequest:
        if not self._backlog:
            prompt, output = (self._sizes.randint(*r) for r in (self.workload.batch_prompt, self.workload.batch_output))
            self._backlog.append(SimulatedRequest(next(self._numbers), BATCH, self.now, prompt, output))
        return self._backlog[0]

    def _start_engine(self) -> SimulatedEngine:
        profile = self.workload.engine
        return SimulatedEngine(self.arm.scheduler(lambda: self.now, self.conditions, profile), self._noise, profile)

    def _over(self) -> bool:
        late = self.now > self.workload.seconds
        return late and (not self._open or self.now > OVERTIME * self.workload.seconds)

    def _run_events(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            when, _, act = heapq.heappop(self._events)
            self.now = max(self.now, when)
            act()

    def _step(self) -> None:
        step = self.engine.begin()
        end = self.now + step.seconds
        scheduler = self.engine.scheduler
        if isinstance(scheduler, HarvestMixin) and len(scheduler.requests) >= CROWD:
            self._plans.append(scheduler.report.plan_seconds)
        self._run_events(end)
        self.now = end
        if not self.up:
            return  # the engine was restarted during the step
        for item in self.engine.finish(step):
            if item.priority == BATCH:
                self._batch_token(item)
            else:
                self._sync_token(item)
        if self.now <= self.workload.seconds:
            self.useful.wasted = sum(engine.tally.wasted for engine in (*self._stopped_engines, self.engine))

    def _leave(self) -> None:
        gone = [item for item in self._leaving if item.made < item.output]
        self._leaving.clear()
        if self.up:
            self.engine.abort([item for item in gone if item.request is not None])
        self._backlog.extendleft(reversed(gone))

    def _arrive(self, arrival: Arrival) -> None:
        item = SimulatedRequest(next(self._numbers), SYNC, self.now, arrival.prompt, arrival.output)
        if not self.up:
            self._unserved += 1
            return
        self._open[item.number] = item
        self.engine.add(item, self.now)
        self._notify(self.worker.sync_arrived, item)

    def _sync_token(self, item: SimulatedRequest) -> None:
        if item.last_token is None:
            item.first_token = self.now
            self._ttft.append(self.now - item.arrived)
            self._notify(self.worker.sync_answered, item)
        else:
            self._itl.append(self.now - item.last_token)
        item.last_token = self.now
        if item.made == item.output:
            del self._open[item.number]
            self._notify(self.worker.sync_finished, item)

    def _notify(self, receive: Callable[[SimulatedRequest], None], item: SimulatedRequest) -> None:
        if self.worker.listens:
            self.at(self.now + MESSAGE_SECONDS, lambda: receive(item))

    def _batch_token(self, item: SimulatedRequest) -> None:
        if self.now <= self.workload.seconds:
            self.useful.output += 1
            self.useful.prompt += item.prompt if item.made == 1 else 0
        self.worker.batch_token(item)
        if item.made == item.output:
            self.live.pop(item.number, None)

    def _restart(self) -> None:
        """Stop the engine: streamed batch tokens are kept, and open synchronous requests are lost."""
        self.up = False
        self._unserved += len(self._open)
        for item in self._open.values():
            self._notify(self.worker.sync_finished, item)
        self._open.clear()
        self._leaving += self.live.values()
        self.live.clear()
        for item in self._leaving:
            item.request = None
        self._stopped_engines.append(self.engine)
        self.at(self.now + RESTART_SECONDS, self._restarted)

    def _restarted(self) -> None:
        self.engine = self._start_engine()
        self.up = True

    def _outcome(self) -> RunSamples:
        engines = [*self._stopped_engines, self.engine]
        harvests = [engine.scheduler for engine in engines if isinstance(engine.scheduler, HarvestMixin)]
        return RunSamples(
            seconds=self.workload.seconds,
            ttft=np.array(self._ttft),
            itl=np.array(self._itl),
            prompt_tokens=self.useful.prompt,
            output_tokens=self.useful.output,
            wasted=self.useful.wasted,
            unserved=self._unserved,
            evicted=sum(scheduler.report.evictions for scheduler in harvests),
            faults=sum(scheduler.report.faults for scheduler in harvests),
            preempted=sum(engine.preemptions for engine in engines),
            yields=self.yields,
            plan=np.array(self._plans),
        )
