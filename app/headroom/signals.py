"""What the controller looks at: one sight of an engine, put together from scrape, ledger, gateway and step meter."""

from dataclasses import dataclass

from app.headroom.arrivals import SyncLoad
from app.headroom.engine_metrics import EngineGauges
from app.headroom.silence import Stall, missed


@dataclass(frozen=True, slots=True)
class Scrape:
    """One look at `GET /metrics`: its gauges (None: unreadable) and the monotonic second at which it began.

    `own`: the fewest of our requests in the engine around the scrape, so that others' are never underestimated. What we
    admit later counts as ours only once a newer scrape shows it. `limit`: the age in seconds from which on it is too old, as
    the sampler has learned; 0: as the settings say. `frozen`: its counters stand still, since `sampled_at`.
    """

    gauges: EngineGauges | None
    sampled_at: float
    own: int
    limit: float = 0.0
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """Our own requests in the engine now, by our ledger.

    `prefill_tokens` are the prompts of those without a first token; `context_tokens` are prompt and output of all;
    `computed_tokens` counts, for ever, the tokens that we know the engine computed for us.
    """

    requests: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    computed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of an engine step, as meant over the last scrapes.

    `measured`: as it was; `alone`: the model's word on the same step without batch; `decode`: on a step of nothing but
    the synchronous requests' next tokens; `shortest`: on a step of one token; `per_request`: what one more decoding
    batch request adds.
    """

    measured: float
    alone: float
    decode: float
    shortest: float
    per_request: float


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything one tick of the controller knows. `sync` None: no word from a gateway.

    `urgency` is 0 with time to spare and 1 when a batch is about to miss its deadline. `stalls`: when this process did not
    run. `still_seconds`: how long an engine that works for us may show no progress, as learned; 0: as the settings say.
    """

    now: float
    scrape: Scrape | None
    batch: BatchLoad
    sync: SyncLoad | None = None
    steps: StepTime | None = None
    urgency: float = 0.0
    stalls: tuple[Stall, ...] = ()
    still_seconds: float = 0.0

    def age(self, since: float) -> float:
        """Seconds since then in which this process ran."""
        return self.now - since - missed(self.stalls, since)
