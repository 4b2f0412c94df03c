"""Watches the answers that stream to us, for an engine whose page counts no steps: their pace, and their first tokens."""

from dataclasses import replace

from app import clock
from app.headroom.arrivals import Arrivals
from app.headroom.signals import Scrape, StepTime
from app.headroom.step_meter import StepMeter
from app.headroom.stream_pace import FirstTokens, FirstTokenWait
from workers.gpu.item_runner import ItemRunner


class StreamWatch:
    """Feeds the step meter from our own streams, and from what gateways report of synchronous ones."""

    def __init__(self, runner: ItemRunner, arrivals: Arrivals, meter: StepMeter) -> None:
        self._runner = runner
        self._arrivals = arrivals
        self._meter = meter
        self._first_tokens = FirstTokens()
        self._wait: FirstTokenWait | None = None

    @property
    def needed(self) -> bool:
        """Whether the engine counts no steps."""
        return not self._runner.target.terms.dialect.counts_steps

    def look(self) -> None:
        """Look at every stream. Call it at each tick of the controller."""
        if not self.needed:
            return
        ledger, now = self._runner.ledger, clock.monotonic()
        streams, sync = ledger.streams(), self._arrivals.load(now)
        context = float(ledger.load().context_tokens + sync.context_tokens)
        self._meter.observe_streams(now, streams, sync.open - sync.awaiting, context)
        self._wait = self._first_tokens.observe(now, streams, self._arrivals.recent(now).first_token)

    def step_time(self, steps: StepTime | None) -> StepTime | None:
        """The step time, at least the gap between two tokens that gateways have just measured."""
        if steps is None or not self.needed:
            return steps
        return replace(steps, measured=max(steps.measured, self._arrivals.recent(clock.monotonic()).gap))

    def first_token(self, scrape: Scrape | None) -> FirstTokenWait | None:
        """The wait for first tokens, if the engine does not show its queue."""
        return self._wait if scrape is not None and scrape.blind else None
