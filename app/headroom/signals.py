"""What the controller knows at one tick: the last scrape, our own requests, announced synchronous requests, step times.

A new gauge that closes the gate at a limit needs nothing here; `gate_rules` says how to add one.
"""

from dataclasses import dataclass

from app.headroom.arrivals import SyncLoad
from app.headroom.engine_metrics import EngineGauges
from app.headroom.silence_limit import Stall, missed
from app.headroom.stream_pace import FirstTokenWait


@dataclass(frozen=True, slots=True)
class Scrape:
    """One `GET /metrics`: its gauges (None: unreadable) and the monotonic second at which the request began.

    `own`: the smallest number of our requests in the engine during the scrape, so that requests of others are never
    underestimated. `limit`: the age in seconds beyond which it is too old, as learned; 0: the setting applies. `frozen`: the
    counters have not changed since `sampled_at`. `blind`: the engine shows no load, and the gauges are only what we know
    ourselves: our own requests and the announced ones. `leaving`: requests in the gauges that are ours and have left already.
    """

    gauges: EngineGauges | None
    sampled_at: float
    own: int
    limit: float = 0.0
    frozen: bool = False
    blind: bool = False
    leaving: int = 0

    @property
    def beyond(self) -> int:
        """Requests in the gauges that are not our present ones: those of others, and ours that have left."""
        if self.gauges is None:
            return 0
        if self.gauges.sync is not None:
            return sum(self.gauges.sync)
        return max(0, self.gauges.running + self.gauges.waiting - self.own)

    @property
    def others(self) -> int:
        """Requests of others in the engine, running or waiting."""
        told_apart = self.gauges is not None and self.gauges.sync is not None
        return self.beyond if told_apart else max(0, self.beyond - self.leaving)

    @property
    def others_waiting(self) -> int:
        """Requests of others that wait in the engine. If it does not distinguish them from ours, they count as the first."""
        if self.gauges is None:
            return 0
        return self.gauges.sync[1] if self.gauges.sync is not None else min(self.gauges.waiting, self.others)


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """Our own requests in the engine now.

    `prefill_tokens`: prompts of the requests without a first token. `context_tokens`: prompt and output of all requests.
    `computed_tokens`: a counter of the tokens that the engine has computed for us.
    """

    requests: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    computed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of an engine step, as a mean over the last scrapes. All but `measured` are predictions of the step model.

    `alone`: the same step without batch work. `decode`: a step of only the next tokens of synchronous requests. `shortest`: a
    step of one token. `per_request`: what one more decoding batch request adds.
    """

    measured: float
    alone: float
    decode: float
    shortest: float
    per_request: float


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything that the controller knows at one tick. `sync` None: no gateway has announced anything.

    `urgency`: 0 when no deadline is near, 1 when a batch is about to miss its deadline. `stalls`: when this process did not
    run. `still_seconds`: how long an engine that works for us may show no progress, as learned; 0: the setting applies.
    `first_token`: the longest wait for a first token, where the engine does not show its queue.
    """

    now: float
    scrape: Scrape | None
    batch: BatchLoad
    sync: SyncLoad | None = None
    steps: StepTime | None = None
    urgency: float = 0.0
    stalls: tuple[Stall, ...] = ()
    still_seconds: float = 0.0
    first_token: FirstTokenWait | None = None

    def age(self, since: float) -> float:
        """Seconds since then, without the time in which this process did not run."""
        return self.now - since - missed(self.stalls, since)
