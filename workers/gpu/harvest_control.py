"""The worker's side of the scheduler inside the engine (L2): limits go down, reports come up.

The scheduler decides what runs in each step. The worker only decides how many batch requests are in the engine: as many as have a
slot beside synchronous work, so that the others wait in PostgreSQL and not in vLLM's queue. Without the scheduler (an attached
engine, an untested vLLM, a fault in it) the controller outside the engine (L1) decides.
"""

import glob
import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from app.headroom.controller import Decision
from app.headroom.gate_rules import HeadroomLimits, Reason, closed_by
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.step_budget import UNLIMITED_TOKENS
from app.headroom.step_model import WARM
from app.settings import Settings
from workers.engine import control_page, step_stats_receiver
from workers.engine.control_page import Commands, PageOwner, Report

SPARE = 2  # batch requests that may wait in vLLM's own queue, so that a free slot is used at once
SCHEDULER = "workers.engine.scheduler.HarvestScheduler"
_YIELD_STALE_SECONDS = 5.0
_TOKEN_BYTES = 4

log = structlog.get_logger()


def commands_of(settings: Settings) -> Commands:
    """The commands of the settings, with no deadline near."""
    return replace(Commands.of(settings), harvest=settings.headroom == "measured")


class HarvestControl:
    """One engine's control page, from `engine_starts` to `close`. It has none if the engine runs vLLM's own scheduler.

    Each worker names its page and socket differently, so a standby worker does not touch those of the active one.
    """

    def __init__(self, settings: Settings, page_prefix: Path | None = None) -> None:
        self.report: Report | None = None
        self.environment: dict[str, str] = {}  # variables of the engine that name page or socket
        self.socket: Path | None = None
        self._prefix = page_prefix
        self._page: PageOwner | None = None
        self._tripped = False
        self._moved = (-1, -math.inf)  # the last count of steps, and when it was first seen
        self._commands = commands_of(settings)

    @classmethod
    def of(cls, settings: Settings) -> "HarvestControl":
        """A control with a page in the data directory."""
        harvest = cls(settings, _own_path(settings, "page"))
        harvest.environment = {control_page.VARIABLE: str(harvest._prefix)}
        return harvest

    @classmethod
    def without_scheduler(cls, settings: Settings) -> "HarvestControl":
        """A control without a page, for vLLM's own scheduler. The engine sends each step over a socket."""
        harvest = cls(settings)
        harvest.socket = _own_path(settings, "sock")
        _clear(harvest.socket, step_stats_receiver.is_orphaned)
        harvest.environment = {step_stats_receiver.VARIABLE: str(harvest.socket)}
        return harvest

    def command(self, urgency: float) -> None:
        """Renew the heartbeat, send the urgency of the nearest deadline, and read the last report."""
        if self._page is None:
            return
        self._page.command(replace(self._commands, urgency=urgency))
        self.report = self._page.report()

    def decide(self, signals: Signals, limits: HeadroomLimits) -> Decision | None:
        """The decision, or None if the scheduler in the engine is not at work."""
        if self._page is None or self.report is None or not self.report.supported:
            return None
        now, batch, report = signals.now, signals.batch, _emptied(self.report, signals.scrape)
        if report.tripped:
            self._log_trip(report)
            if not batch.requests and not report.batch_running:
                return None
            return Decision(0, Reason.PLUGIN_TRIPPED, "faults", report.faults, 1, surplus=batch.requests)
        if report.steps != self._moved[0] or _idle(signals):
            self._moved = (report.steps, now)
        limit = max(limits.stale_seconds, signals.still_seconds)
        if (age := signals.age(self._moved[1])) > limit:
            surplus = batch.requests if age > max(_YIELD_STALE_SECONDS, 2 * limit) else 0
            return Decision(0, Reason.CLOSED_STALE, "still_seconds", age, limit, surplus=surplus)
        decision = residents(report, batch, limits, self._commands.error)
        gauges = signals.scrape.gauges if signals.scrape else None
        closed = closed_by(replace(gauges, kv_usage=report.kv_usage), limits) if gauges else None
        return Decision(0, *closed) if closed and decision.allowance else decision

    def engine_starts(self) -> None:
        """Prepare the page for the next engine: it starts with the weights that the last one learned, and without a report."""
        if self._prefix is None:
            return
        if self._page is None:
            _clear(self._prefix, lambda _: True)
            self._page = PageOwner(self._prefix)
        else:
            self._page.renew()
        self.command(0.0)
        self.report = None

    def _log_trip(self, report: Report) -> None:
        if not self._tripped:
            log.error("harvest.tripped", faults=report.faults)
        self._tripped = True

    @property
    def active(self) -> bool:
        """Whether the scheduler plans the steps, by its last report."""
        r = self.report
        return r is not None and self._commands.harvest and r.supported and not (r.tripped or r.silent)

    def close(self) -> None:
        """Remove the page, if there is one."""
        if self._page is not None:
            self._page.close()
        self._page = self.report = None


def _own_path(settings: Settings, kind: str) -> Path:
    """The path of a file for a running engine, unique to this worker."""
    folder = settings.data_dir / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.engine_name}.{secrets.token_hex(_TOKEN_BYTES)}.{kind}"


def _clear(path: Path, left_behind: Callable[[Path], bool]) -> None:
    """Remove the files of this kind that killed workers of the same engine left behind."""
    name, _, kind = path.name.rsplit(".", 2)
    for other in path.parent.glob(f"{glob.escape(name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}.{kind}*"):
        if left_behind(other):
            other.unlink(missing_ok=True)


def _idle(signals: Signals) -> bool:
    """Whether the engine has no requests, by the last scrape and by our own count. Then it takes no step."""
    gauges = signals.scrape.gauges if signals.scrape else None
    return gauges is not None and not (gauges.running + gauges.waiting + signals.batch.requests)


def _emptied(report: Report, scrape: Scrape | None) -> Report:
    """The report, without requests if a newer scrape shows none. An idle scheduler takes no step and reports nothing."""
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
    """How many batch requests may be in an engine whose own scheduler shares the steps."""
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
    comparison = ("step_seconds", report.step_seconds, report.allowed_seconds)
    return Decision(allowance, Reason.HARVEST, *comparison, prefill_tokens=UNLIMITED_TOKENS)
