"""The L1 arm's worker: our controller outside the engine, with the signals that a worker gets, at the time it gets them.

The controller, its step meter, the record of announced requests and the limits of the settings are the shipped ones. The
connections are simulated: a scrape takes three milliseconds, a message from the gateway one. Two checks against broken
connections are left out: that of counters which do not change, and the probe. `tests/gpu` covers them.
"""

from collections import deque

from app.headroom.arrivals import Arrivals
from app.headroom.controller import State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import HeadroomLimits
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.step_meter import StepMeter
from app.settings import Settings
from benchmarks.colocation.capped_workers import CappedWorker
from benchmarks.colocation.simulated_engine import SimulatedRequest
from benchmarks.colocation.simulation_view import SimulationView
from benchmarks.colocation.skewed_step_model import SkewedStepModel

SCRAPE_SECONDS = 3e-3


class L1Worker(CappedWorker):
    """Ticks, scrapes, receives announcements of synchronous requests, and applies each decision at once."""

    def __init__(self, run: SimulationView) -> None:
        super().__init__(run, 0)
        settings = Settings()
        self.listens = run.conditions.arrival_trigger
        self._limits = HeadroomLimits.of(settings, run.workload.engine.slots)
        self._pauses = settings.control_seconds, settings.sample_seconds
        self._arrivals = Arrivals(settings.request_timeout_seconds)
        self._meter = StepMeter(SkewedStepModel(run.conditions.model_factor))
        self._prefilling: dict[int, int] = {}
        self._computed = 0
        self._latest: Scrape | None = None
        self._pages: deque[tuple[float, EngineGauges]] = deque()  # (time, values) of /metrics
        self._state, self.decision = decide(State(), self._signals(), self._limits)
        run.at(0.0, self._scrape)
        run.at(0.0, self._tick)

    def may_admit(self, item: SimulatedRequest) -> bool:
        """The rule of the puller: within the allowance, and within the budget for prompts under computation."""
        if len(self.run.live) >= self.decision.allowance:
            return False
        computing = self._computing()
        return (
            self.decision.prefill_tokens > 0 if not computing else computing + item.held <= self.decision.prefill_tokens
        )

    def admitted(self, item: SimulatedRequest) -> None:
        """Count its prompt as under computation until its first token."""
        self._prefilling[item.number] = item.held

    def batch_token(self, item: SimulatedRequest) -> None:
        """Count the tokens of a streamed event."""
        self._prefilling.pop(item.number, None)
        self._computed += 1 + (item.prompt if item.made == 1 else 0)

    def sync_arrived(self, item: SimulatedRequest) -> None:
        """Decide at once instead of at the next tick."""
        self._arrivals.arrived(str(item.number), item.prompt, item.output, self.run.now)
        self._decide()

    def sync_answered(self, item: SimulatedRequest) -> None:
        """Note that its prompt is computed."""
        assert item.first_token is not None
        self._arrivals.first_token(str(item.number), self.run.now, 1e3 * (item.first_token - item.arrived))

    def sync_finished(self, item: SimulatedRequest) -> None:
        """Note that it ended, complete or not."""
        pace = None
        if item.first_token is not None and item.last_token is not None and item.made > 1:
            pace = 1e3 * (item.last_token - item.first_token) / (item.made - 1)
        self._arrivals.finished(str(item.number), self.run.now, pace, pace)

    def _computing(self) -> int:
        self._prefilling = {number: held for number, held in self._prefilling.items() if number in self.run.live}
        return sum(self._prefilling.values())

    def _load(self) -> BatchLoad:
        live = self.run.live
        computing = self._computing()
        held = sum(item.held for item in live.values())
        return BatchLoad(len(live), computing, held, self._computed)

    def _signals(self) -> Signals:
        now, batch, scrape, sync = self.run.now, self._load(), self._latest, self._arrivals.load(self.run.now)
        gauges = scrape.gauges if scrape else None
        others = max(0, gauges.running + gauges.waiting - scrape.own) if gauges and scrape else 0
        steps = self._meter.now(scrape, batch, max(others, sync.open - sync.awaiting))
        return Signals(now=now, scrape=scrape, batch=batch, sync=sync, steps=steps)

    def _tick(self) -> None:
        self._decide()
        self.run.at(self.run.now + self._pauses[0], self._tick)

    def _decide(self) -> None:
        self._state, self.decision = decide(self._state, self._signals(), self._limits)
        if self.decision.surplus:
            self.run.yield_batch(self.decision.surplus)
        self.run.admit()

    def _scrape(self) -> None:
        began, own, page = self.run.now, len(self.run.live), self._page()
        self.run.at(began + SCRAPE_SECONDS, lambda: self._scraped(began, own, page))
        self.run.at(began + SCRAPE_SECONDS + self._pauses[1], self._scrape)

    def _scraped(self, began: float, own: int, page: EngineGauges | None) -> None:
        if page is not None:
            self._latest = Scrape(page, began, min(own, len(self.run.live)))
            self._meter.observe(self._latest, self._load())

    def _page(self) -> EngineGauges | None:
        """The values of /metrics: the present ones, or older ones in an ablation. None while the engine is down."""
        if not self.run.up:
            return None
        now, conditions = self.run.now, self.run.conditions
        if not (conditions.frozen and now > self.run.workload.seconds / 2 and self._pages):
            self._pages.append((now, self.run.engine.gauges))
        while len(self._pages) > 1 and self._pages[1][0] <= now - conditions.telemetry_late:
            self._pages.popleft()
        return self._pages[0][1]
