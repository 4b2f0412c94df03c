"""An engine with vLLM's own scheduler, whose steps take only simulated time.

The scheduler, its KV blocks and its prefix cache are the real classes. A formula (`engine_profiles`) gives the duration of each
step, so ratios are meaningful and milliseconds are not. No two requests share a prompt: the prefix cache only helps a request
that returns after a yield or a preemption.
"""

from dataclasses import dataclass, field
from random import Random

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from app.headroom.engine_metrics import EngineGauges
from benchmarks.colocation.engine_profiles import GPU, EngineProfile
from testing.bare_scheduler import BATCH, BLOCK, TOKEN, finish_step, request

NOISE = 0.05  # spread of the step times
NOTHING_SCHEDULED = 1e-3


@dataclass(slots=True, eq=False)
class SimulatedRequest:
    """One request, through all its attempts. `computed`: token positions that were ever computed for it."""

    number: int
    priority: int
    arrived: float
    prompt: int
    output: int
    made: int = 0
    computed: int = 0
    yields: int = 0
    first_token: float | None = None
    last_token: float | None = None
    request: Request | None = None
    cached: int | None = None  # prompt tokens of this attempt that the prefix cache held; None until first scheduled

    @property
    def held(self) -> int:
        """Tokens of context: prompt and output so far."""
        return self.prompt + self.made


@dataclass(slots=True)
class Step:
    """A running step: what vLLM scheduled, and its duration."""

    output: SchedulerOutput
    seconds: float


@dataclass(slots=True)
class Tally:
    """Tokens scheduled for batch requests: new positions, and positions computed before (`wasted`)."""

    fresh: int = 0
    wasted: int = 0


@dataclass(slots=True)
class SimulatedEngine:
    """Call `begin`, let the seconds of the step pass, and call `finish`. `gauges`: those of /metrics after the last step."""

    scheduler: Scheduler
    chance: Random
    profile: EngineProfile = GPU
    tally: Tally = field(default_factory=Tally)
    preemptions: int = 0
    gauges: EngineGauges = field(init=False)
    _items: dict[str, SimulatedRequest] = field(default_factory=dict)
    _attempts: int = 0
    _counters: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # generated, prompt, steps, step tokens

    def __post_init__(self) -> None:
        self.gauges = EngineGauges(0, 0, 0.0, 0, 0, 0, kv_capacity=self.profile.kv_blocks * BLOCK)

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.has_unfinished_requests())

    def add(self, item: SimulatedRequest, now: float) -> None:
        """Begin a new attempt. Its prompt includes the tokens that the request has so far."""
        self._attempts += 1
        name = f"{item.number}-{self._attempts}"
        tokens = [item.number] * item.prompt + [TOKEN] * item.made
        item.cached = None
        item.request = request(name, tokens, item.output - item.made, item.priority, now, prefix_cache=True)
        self._items[name] = item
        self.scheduler.add_request(item.request)

    def abort(self, items: list[SimulatedRequest]) -> None:
        """Remove requests from the engine. Allowed between two steps only."""
        names = [item.request.request_id for item in items if item.request is not None]
        for item in items:
            item.request = None
        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        for name in names:
            del self._items[name]

    def begin(self) -> Step:
        """Let vLLM schedule a step."""
        output = self.scheduler.schedule()
        self.preemptions += len(output.preempted_req_ids or ())
        context = sum(self._account(self._items[name], count) for name, count in output.num_scheduled_tokens.items())
        tokens = output.total_num_scheduled_tokens
        if not tokens:
            return Step(output, NOTHING_SCHEDULED)
        return Step(output, self.profile.seconds(tokens, context) * self.chance.lognormvariate(0, NOISE))

    def _account(self, item: SimulatedRequest, count: int) -> int:
        """Count new and repeated tokens. Returns the context that the step reads for the request."""
        assert item.request is not None
        end: int = item.request.num_computed_tokens
        start = end - count
        if item.cached is None:
            item.cached = start
        if item.priority == BATCH:
            again = max(0, min(end, item.computed) - start)
            self.tally.wasted += again
            self.tally.fresh += count - again
        item.computed = max(item.computed, end)
        return start

    def finish(self, step: Step) -> list[SimulatedRequest]:
        """Give the result of the step to the scheduler, as a model runner does. Returns the requests that got a token."""
        given = [self._items[name] for name in finish_step(self.scheduler, step.output)]
        self._count(given)
        for item in given:
            item.made += 1
            if item.made == item.output:
                assert item.request is not None
                del self._items[item.request.request_id]
                item.request = None
        return given

    def _count(self, given: list[SimulatedRequest]) -> None:
        """Update the counters as vLLM does: steps without a token do not count, and a prompt counts with its first token."""
        if given:
            prompts = [item for item in given if item.request and item.request.num_output_tokens == 1]
            computed = sum(item.request.num_prompt_tokens - (item.cached or 0) for item in prompts if item.request)
            total = sum(item.request.num_prompt_tokens for item in prompts if item.request)
            for place, more in enumerate((len(given), total, 1, len(given) + computed)):
                self._counters[place] += more
        generated, prompt, steps, step_tokens = self._counters
        running, waiting = self.scheduler.get_request_counts()
        usage, capacity = self.scheduler.kv_cache_manager.usage, self.profile.kv_blocks * BLOCK
        self.gauges = EngineGauges(
            running, waiting, usage, generated, prompt, self.preemptions, steps, step_tokens, capacity
        )
