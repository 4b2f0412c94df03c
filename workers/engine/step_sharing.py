"""Harvest: vLLM's scheduler, in which batch requests use only the step time that synchronous requests leave.

The `priority` of a request says whether it is a batch request. Before each step the plan (`step_plan`) chooses the
batch requests that take part. The others are frozen for this one step: they keep their KV cache, slot and place. Waiting
batch requests that may not join the step are removed from vLLM's queues during the call. A batch request is evicted in two
cases only: a waiting synchronous request needs its slot or blocks and will then fit, or the request has been frozen for long
while memory is short. vLLM does everything else.

An exception in `schedule` would kill the engine. Therefore the plan is complete before anything changes. After the first fault no
batch request runs until the engine restarts, and their slots are freed as soon as a synchronous request waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Any

from vllm.logger import init_logger

from . import vllm_support
from .control_page import Commands, Report
from .preemption import Load, Preemption
from .quiet import Quiet
from .request_class import BATCH_PRIORITY
from .step_model import StepModel
from .step_plan import StepPlan, Sync, plan

logger = init_logger("vllm.harvest")

NAP_SECONDS = 0.002  # without it, an engine with only frozen requests would use a whole CPU


@dataclass(slots=True)
class _Step:
    """A step in flight."""

    output: Any
    scheduled_at: float
    tokens: int
    context: int
    predicted: float


class HarvestMixin(Preemption):
    """The mixin. Without `commands` vLLM schedules alone. A simulator sets `clock`."""

    clock: Callable[[], float] = staticmethod(monotonic)
    nap: Callable[[float], None] = staticmethod(sleep)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands: Commands | None = None
        self.model = StepModel()
        self.report = Report()
        self._steps: deque[_Step] = deque()
        self._quiet: Quiet | None = None  # before the first step or caller
        self._updated_at = float("-inf")
        try:
            objections = vllm_support.objections(self)
        except Exception as error:  # raised by a vLLM whose attributes have changed
            objections = [repr(error)]
        self.report.supported = not objections
        if not objections:
            self.report.slots = getattr(self, self.vllm.slots)
        else:
            logger.warning("HARVEST_UNSUPPORTED: vLLM schedules alone: %s", "; ".join(objections))

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step: make the plan, apply it, and call vLLM's own `schedule`."""
        if not self.report.supported:
            try:
                self._publish()
            except Exception:
                self._trip()
            return super().schedule(*args, **kwargs)
        now = self.clock()
        budget, queues = self.max_num_scheduled_tokens, (self.waiting, self.second_queue)
        planned: StepPlan | None = None
        try:
            if self._commanded():
                planned = self._prepare(now)
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = budget
            self._show(queues)
        try:
            self._note(output, planned, now)
        except Exception:
            self._trip()
        return output

    def add_request(self, request: Any) -> None:
        """Call vLLM's own method, and note the arrival of a synchronous request."""
        if request.priority < BATCH_PRIORITY:
            now = self.clock()
            self._quiet = (self._quiet or Quiet(now)).arrived(now)
        super().add_request(request)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Call vLLM's own method, and give the model one measured step."""
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if not self.report.supported:
            return outputs
        try:
            self._learn(scheduler_output)
        except Exception:
            self._trip()
        return outputs

    # Commands

    def _commanded(self) -> bool:
        commands = self.commands
        return commands is not None and commands.harvest and self.report.supported

    def _silent(self, now: float) -> bool:
        """Whether the worker's heartbeat is missing; False for a scheduler without a page."""
        return False

    def _sync_elsewhere(self, now: float) -> bool:
        """Whether another rank, in lockstep with this one, has a synchronous request."""
        return False

    # Before the step

    def _prepare(self, now: float) -> StepPlan | None:
        began = monotonic()
        try:
            if not self.report.tripped:
                return self._share(now)
        except Exception:
            self._trip()
        finally:
            self.report.plan_seconds = monotonic() - began
        for step in (self._shed, self._hide):
            try:
                step()
            except Exception:
                logger.exception("HARVEST_SHED_FAILED")
        return None

    def _share(self, now: float) -> StepPlan:
        """Plan the step and apply the plan: freeze, evict, hide, and limit the tokens."""
        commands, report = self.commands, self.report
        assert commands is not None
        load, cap = self._classified(), self.max_num_scheduled_tokens
        decided = self._decide(load, commands, now)
        report.silent = self._silent(now)
        if report.silent:
            decided = replace(decided, decodes=0, chunks=[0] * len(load.prefills), room=0)
        frozen = load.decodes[decided.decodes :]
        frozen += [r for r, chunk in zip(load.prefills, decided.chunks, strict=True) if not chunk]
        if load.waiting:
            victims, fits, awaited = self._victims(load)
        else:
            victims, awaited = self._misplaced(load)
            victims, fits = victims or self._stuck(frozen, commands, now), True
        frozen += [r for r in awaited if r not in frozen]
        scarce = self.kv_cache_manager.usage > 1 - commands.kv_reserve
        hide = bool(victims or load.waiting) or decided.room < 1 or scarce
        # Everything is decided; from here on the scheduler changes.
        batch = load.decodes + load.prefills
        if victims:
            gone = set(victims)
            self._evict(victims)
            batch, frozen = [r for r in batch if r not in gone], [r for r in frozen if r not in gone]
        self._freeze(frozen, now)
        self.running = load.sync + batch
        if hide:
            self._hide(loading=fits)
        else:
            self._hide_unfit(load)
        if not load.waiting:
            self.max_num_scheduled_tokens = max(1, min(cap, decided.tokens + (0 if hide else decided.room)))
        report.sync_running, report.sync_waiting = len(load.sync), len(load.waiting)
        report.batch_running, report.batch_frozen = len(batch), len(frozen)
        return decided

    def _decide(self, load: Load, commands: Commands, now: float) -> StepPlan:
        """The plan of the step. Batch prompts with images wait while a synchronous request is present: no model of ours
        knows how long the encoder takes."""
        contexts = [r.num_computed_tokens for r in load.decodes]
        wants = [
            (0 if load.present and r.has_encoder_inputs else self._want(r), r.num_computed_tokens)
            for r in load.prefills
        ]
        each = 1 + self.num_spec_tokens
        sync = self._sync_work(load, now)
        return plan(self.model, sync, contexts, wants, self.max_num_scheduled_tokens, commands, each)

    def _sync_work(self, load: Load, now: float) -> Sync:
        decoding = [r.num_computed_tokens for r in load.sync if not r.is_prefill_chunk]
        tokens = sum(map(self._want, load.sync)) + sum(map(self._want, load.waiting))
        quiet = self._quiet or Quiet(now)
        present = load.present or self._sync_elsewhere(now)
        self._quiet = quiet.present(now) if present else quiet
        return Sync(
            tokens=min(self.max_num_scheduled_tokens, tokens),
            context=sum(r.num_computed_tokens for r in load.sync),
            decoding=len(decoding),
            decode_context=sum(decoding),
            waiting=len(load.waiting),
            present=present,
            quiet=quiet.step(now),
        )

    def _shed(self) -> None:
        """After a fault: freeze all batch requests, and evict them if a synchronous request waits."""
        batch = [r for r in self.running if r.priority >= BATCH_PRIORITY]
        if self._waiting_sync():
            self._evict(batch)
        else:
            self._freeze(batch, 0.0)

    def _trip(self) -> None:
        self.report.faults += 1
        if not self.report.tripped:
            self.report.tripped = True
            logger.exception("HARVEST_TRIPPED: batch is shed until the engine restarts")

    # After the step

    def _note(self, output: Any, planned: StepPlan | None, now: float) -> None:
        """Remember the step for the model, and publish it on the page."""
        report, tokens = self.report, output.total_num_scheduled_tokens
        report.at, report.steps, report.planning = now, report.steps + (tokens > 0), planned is not None
        if planned is None:
            report.sync_running = sum(r.priority < BATCH_PRIORITY for r in self.running)
            report.batch_running = len(self.running) - report.sync_running
            report.sync_waiting = len(self._waiting_sync())
            report.batch_frozen = report.batch_running if report.tripped else 0
        else:
            report.allowed_seconds, report.trusted = planned.allowed, planned.trusted
        report.batch_waiting = max(0, len(self.waiting) + len(self.second_queue) - report.sync_waiting)
        report.kv_usage = self.kv_cache_manager.usage
        if tokens:
            given = output.num_scheduled_tokens
            sync = sum(n for rid, n in given.items() if self.requests[rid].priority < BATCH_PRIORITY)
            report.sync_tokens += sync
            report.batch_tokens += tokens - sync
            context = sum(output.scheduled_cached_reqs.num_computed_tokens)
            context += sum(new.num_computed_tokens for new in output.scheduled_new_reqs)
            predicted = self.model.predict(tokens, context)
            self._steps.append(_Step(output, now, tokens, context, predicted))
        elif self._frozen and not self._steps and (report.silent or report.tripped):
            self.nap(NAP_SECONDS)
        self._publish()

    def _learn(self, output: Any) -> None:
        """A step begins when it is scheduled or, in a full pipeline, when the step before it ends."""
        now = self.clock()
        if self._steps and self._steps[0].output is output:
            step = self._steps.popleft()
            seconds = now - max(step.scheduled_at, self._updated_at)
            if not output.scheduled_encoder_inputs:  # their time is not a matter of tokens
                self.model.learn(step.tokens, step.context, seconds)
            report = self.report
            report.step_seconds, report.predicted_seconds = seconds, step.predicted
            report.model_error, report.model_samples = self.model.error, self.model.samples
        self._updated_at = now

    def _publish(self) -> None:
        """Publish the report; nothing to do without a page."""
