"""The worker's side of the in-engine scheduler (L2): budgets down, reports up, and how many batch requests it may hold.

The scheduler itself decides what runs in each step. The worker only keeps as many batch requests in the engine as have
slots beside synchronous work, so that batch waits in Postgres and not in vLLM's queue. Where the scheduler is not there
(an attached engine, an untested vLLM, a fault in it) the controller outside rules.
"""

import glob
import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from app.headroom.controller import Decision, HeadroomLimits, Reason
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.step_model import WARM
from app.settings import Settings
from workers.engine import control_page, step_stats_receiver
from workers.engine.control_page import Commands, PageOwner, Report
from workers.gpu import metrics

SPARE = 2  # batch requests that may wait in vLLM's own queue, so that a free slot is taken at once
SCHEDULER = "workers.engine.scheduler.HarvestScheduler"
_YIELD_STALE_SECONDS = 5.0
_TOKEN_BYTES = 4

log = structlog.get_logger()


def commands_of(settings: Settings) -> Commands:
    """What the settings say to the scheduler, with no deadline near."""
    return Commands(
        harvest=settings.headroom == "measured",
        itl=settings.itl_budget_ms / 1000,
        stretch=settings.itl_stretch,
        idle_cap=settings.idle_step_ms / 1000,
        idle_stretch=settings.idle_stretch,
    )


class HarvestControl:
    """One engine's control page, there from its start to `close`; without one, an engine whose scheduler we do not share.

    Page and socket have a name of their own for each worker, so that one that stands by for an engine touches nothing of it.
    """

    def __init__(self, settings: Settings, page_prefix: Path | None = None) -> None:
        self.report: Report | None = None
        self.environment: dict[str, str] = {}  # of the engine, by which it finds page or socket
        self.socket: Path | None = None
        self._prefix = page_prefix
        self._page: PageOwner | None = None
        self._said = ""
        self._moved = (-1, -math.inf)  # the newest count of steps, and when it was first seen
        self._commands = commands_of(settings)
        self._ceiling = settings.itl_ceiling_ms / 1000

    @classmethod
    def of(cls, settings: Settings) -> "HarvestControl":
        """With a page in the data directory."""
        harvest = cls(settings, _own_path(settings, "page"))
        harvest.environment = {control_page.VARIABLE: str(harvest._prefix)}
        return harvest

    @classmethod
    def told(cls, settings: Settings) -> "HarvestControl":
        """Without a page, the engine's scheduler being vLLM's own; but each of its steps is told over a socket."""
        harvest = cls(settings)
        harvest.socket = _own_path(settings, "sock")
        _clear(harvest.socket, step_stats_receiver.unheard)
        harvest.environment = {step_stats_receiver.VARIABLE: str(harvest.socket)}
        return harvest

    def command(self, urgency: float) -> None:
        """Renew the heartbeat; a batch near its deadline gets a larger budget, never beyond the ceiling."""
        if self._page is None:
            return
        commands, stepwise = self._commands, math.ceil(max(0.0, min(1.0, urgency)) * 4) / 4
        itl = commands.itl + stepwise * max(0.0, self._ceiling - commands.itl)
        self._page.command(replace(commands, itl=itl))
        self.report = self._page.report()

    def decide(self, sight: Signals, limits: HeadroomLimits) -> Decision | None:
        """The decision if the scheduler in the engine rules; None: it does not."""
        if self._page is None or self.report is None or not self.report.supported:
            return None
        now, batch, report = sight.now, sight.batch, _emptied(self.report, sight.scrape)
        if report.tripped:
            self._note("tripped")
            if not batch.requests and not report.batch_running:
                return None
            return Decision(0, Reason.PLUGIN_TRIPPED, "faults", report.faults, 1, surplus=batch.requests)
        if report.steps != self._moved[0] or _idle(sight):
            self._moved = (report.steps, now)
        limit = max(limits.stale_seconds, sight.still_seconds)
        if (age := sight.age(self._moved[1])) > limit:
            surplus = batch.requests if age > max(_YIELD_STALE_SECONDS, 2 * limit) else 0
            return Decision(0, Reason.CLOSED_STALE, "still_seconds", age, limit, surplus=surplus)
        return residents(report, batch, limits, self._commands.error)

    def engine_starts(self) -> None:
        """The next engine begins with what the last one had learnt of its steps, and with no report. It is ours alone."""
        if self._prefix is None:
            return
        if self._page is None:
            _clear(self._prefix, lambda _: True)
            self._page = PageOwner(self._prefix)
        else:
            self._page.renew()
        self.command(0.0)
        self.report = None

    def _note(self, what: str) -> None:
        if what != self._said:
            log.error("harvest.tripped", faults=self.report.faults if self.report else 0)
        self._said = what

    def metrics(self) -> metrics.HarvestView | None:
        """What the worker's `/metrics` tells of it."""
        r = self.report
        if r is None:
            return None
        active = self._commands.harvest and r.supported and not (r.tripped or r.silent)
        return metrics.HarvestView(active, r.tripped, r.batch_frozen, r.evictions, r.faults, r.plan_seconds)

    def close(self) -> None:
        """Take the page away, if there is one."""
        if self._page is not None:
            self._page.close()
        self._page = self.report = None


def _own_path(settings: Settings, kind: str) -> Path:
    """Of a file beside a running engine, which no other worker has."""
    folder = settings.data_dir / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.engine_name}.{secrets.token_hex(_TOKEN_BYTES)}.{kind}"


def _clear(path: Path, left_behind: Callable[[Path], bool]) -> None:
    """Remove what killed workers of the same engine have left of this kind."""
    name, _, kind = path.name.rsplit(".", 2)
    for other in path.parent.glob(f"{glob.escape(name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}.{kind}*"):
        if left_behind(other):
            other.unlink(missing_ok=True)


def _idle(sight: Signals) -> bool:
    """Whether the last scrape shows an engine without requests, and we have none in it: then it takes no step."""
    gauges = sight.scrape.gauges if sight.scrape else None
    return gauges is not None and not (gauges.running + gauges.waiting + sight.batch.requests)


def _emptied(report: Report, scrape: Scrape | None) -> Report:
    """A scheduler without requests takes no step and reports nothing more: that they have gone, only a scrape can tell."""
    gauges = scrape.gauges if scrape else None
    if scrape is None or gauges is None or scrape.sampled_at <= report.at or gauges.running + gauges.waiting:
        return report
    return replace(
        report,
        sync_running=0,
        sync_waiting=0,
        batch_running=0,
        batch_frozen=0,
        batch_waiting=0,
        kv_usage=gauges.kv_usage,
    )


def residents(report: Report, batch: BatchLoad, limits: HeadroomLimits, error: float) -> Decision:
    """How many batch requests may be in an engine that shares its steps by itself."""
    free = limits.slots - limits.reserve - report.sync_running - report.sync_waiting
    allowance = max(limits.floor, min(limits.cap, free))
    if report.sync_waiting and report.sync_running + report.batch_running >= limits.slots:
        return Decision(0, Reason.CLOSED_SYNC_WAITING, "sync_waiting", report.sync_waiting, 1)
    if not report.kv_usage < limits.kv_ceiling:
        return Decision(0, Reason.CLOSED_KV, "kv_usage", report.kv_usage, limits.kv_ceiling)
    if not report.trusted and report.sync_running:
        if report.model_samples < WARM:
            return Decision(allowance, Reason.CLOSED_MODEL_ERROR, "model_samples", report.model_samples, WARM)
        return Decision(allowance, Reason.CLOSED_MODEL_ERROR, "model_error", report.model_error, error)
    if free <= 0:
        sync = report.sync_running + report.sync_waiting
        return Decision(0, Reason.CLOSED_SLOTS, "sync_requests", sync, limits.slots - limits.reserve)
    if report.batch_waiting >= SPARE:
        allowance = min(allowance, batch.requests)
    said = ("step_seconds", report.step_seconds, report.allowed_seconds)
    return Decision(allowance, Reason.HARVEST, *said, prefill_tokens=1 << 30)
