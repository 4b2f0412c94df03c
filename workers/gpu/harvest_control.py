"""The worker's side of the scheduler inside the engine (L2): limits go down, reports come up.

The scheduler decides what runs in each step. The worker only decides how many batch requests are in the engine: as many as have a
slot beside synchronous work, so that the others wait in PostgreSQL and not in vLLM's queue. Without the scheduler (an engine
without the plug-in, an untested vLLM, pages that cannot be used, a fault in it) the controller outside the engine (L1) decides.
"""

import glob
import math
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from app import clock
from app.headroom.controller import Decision, step_comparison
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import HeadroomLimits, Reason, closed_by
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.settings import Settings
from workers.engine import page_folder, step_stats_receiver
from workers.engine.control_page import Commands, Report
from workers.engine.page_folder import IGNORED, TRIPPED, UNSUPPORTED
from workers.engine.step_budget import UNLIMITED_TOKENS
from workers.engine.step_model import WARM
from workers.gpu.engine_pages import EnginePages

SPARE = 2  # batch requests that may wait in vLLM's own queue, so that a free slot is used at once
_YIELD_STALE_SECONDS = 5.0
_FIRST_STEP_SECONDS, _FOLLOWS_SECONDS = 1.0, 3.0  # a step may have begun before the commands; later ones follow them
_TOKEN_BYTES = 4
RENEWAL_SECONDS = 60.0  # for so long after a fault a managed engine may be started anew, once it has no requests

log = structlog.get_logger()


def commands_of(settings: Settings) -> Commands:
    """The commands of the settings, with no deadline near."""
    return replace(Commands.of(settings), harvest=settings.headroom == "measured")


class HarvestControl:
    """One engine's control pages, from `open` to `close`. There are none if the engine runs vLLM's own scheduler.

    A managed engine gets a folder of its own for them. Each worker names its folder and socket differently, so a standby worker
    does not touch those of the active one. An attached engine's folder is a setting, and only the active worker opens it.
    """

    def __init__(self, settings: Settings, folder: Path | None = None, *, own: bool = False) -> None:
        self.report: Report | None = None
        self.environment: dict[str, str] = {}  # variables of a managed engine that name folder or socket
        self.socket: Path | None = None
        self._folder = folder
        self._own = own
        self._pages: EnginePages | None = None
        self._tripped_at: float | None = None  # when the fault of the scheduler that runs now was seen
        self._yielded = False  # whether vLLM schedules alone after it
        self.renew = False  # whether a managed engine should be started anew now
        self._logged: str | None = ""  # the last obstacle; empty: nothing yet
        self._alone: tuple[float, int] | None = None  # since when no step was planned, and how many there were
        self._ignored = False
        self._called_at: float | None = None  # when a caller was last there, or the first look
        self._moved = (-1, -math.inf)  # the last count of steps, and when it was first seen
        self._commands = commands_of(settings)

    @classmethod
    def of(cls, settings: Settings) -> "HarvestControl":
        """The control of a managed engine with our scheduler."""
        harvest = cls(settings, _own_path(settings, "pages"), own=True)
        harvest.environment = {page_folder.VARIABLE: str(harvest._folder)}
        return harvest

    @classmethod
    def attached(cls, settings: Settings) -> "HarvestControl":
        """The control of an engine that we do not run: its folder is a setting. Without one, L1 rules."""
        return cls(settings, Path(settings.page_dir) if settings.page_dir and settings.harvest else None)

    @classmethod
    def without_scheduler(cls, settings: Settings) -> "HarvestControl":
        """A control without pages, for vLLM's own scheduler. The engine sends each step over a socket."""
        harvest = cls(settings)
        harvest.socket = _own_path(settings, "sock")
        _clear(harvest.socket, step_stats_receiver.is_orphaned)
        harvest.environment = {step_stats_receiver.VARIABLE: str(harvest.socket)}
        return harvest

    def open(self) -> None:
        """Begin to command the engine. Call it before a managed engine starts, and when the worker controls the engine."""
        if self._folder is None or self._pages is not None:
            return
        if self._own:
            _clear(self._folder, lambda _: True)
            self._folder.mkdir(mode=0o700)
        self._pages = EnginePages(self._folder)

    def command(self, urgency: float) -> None:
        """Renew the heartbeat, send the urgency of the nearest deadline, and read the last report."""
        if self._pages is None:
            return
        harvest = self._commands.harvest and not self._yielded
        self._pages.command(replace(self._commands, harvest=harvest, urgency=urgency))
        self.report = self._pages.report()
        if self.report is not None and not self.report.tripped:
            self._tripped_at, self._yielded = None, False
        self._watch(clock.monotonic())
        self._log_obstacle()

    def _watch(self, now: float) -> None:
        """Notice a scheduler that takes steps and does not follow our commands: then nobody would protect requests."""
        r = self.report
        if r is None or r.planning or r.tripped or not (r.supported and self._commands.harvest):
            self._alone, self._ignored = None, False
        elif self._alone is None or now - self._alone[0] < _FIRST_STEP_SECONDS:
            self._alone = (self._alone[0] if self._alone else now), r.steps
        else:
            self._ignored = now - self._alone[0] > _FOLLOWS_SECONDS and r.steps > self._alone[1]

    @property
    def slots(self) -> int | None:
        """How many requests the engine runs at once, as its scheduler says; None: it says nothing, or is too old to."""
        return (self.report.slots or None) if self.report is not None else None

    @property
    def obstacle(self) -> str | None:
        """The code of why the scheduler in the engine does not rule; None if it does, or if nobody asked for it."""
        if self._pages is None:
            return None
        if (problem := self._pages.folder.problem) is not None:
            return problem
        if self._ignored:
            return IGNORED
        if self._tripped_at is not None:
            return TRIPPED
        return UNSUPPORTED if self.report is not None and not self.report.supported else None

    def _log_obstacle(self) -> None:
        obstacle = self.obstacle
        starting = self._own and obstacle == page_folder.NO_PAGE  # a managed engine creates its page late
        if obstacle == self._logged or starting or not self._commands.harvest:
            return
        self._logged = obstacle
        if obstacle is None:
            log.info("harvest.inside", folder=str(self._folder))
        else:
            log.warning("harvest.outside", reason=obstacle, folder=str(self._folder))

    def decide(self, signals: Signals, limits: HeadroomLimits) -> Decision | None:
        """The decision, or None if the scheduler in the engine is not at work."""
        if self.report is None or not self.report.supported or self._ignored:
            return None
        now, batch, report = signals.now, signals.batch, _emptied(self.report, signals.scrape)
        if report.tripped:
            return self._after_fault(report, signals)
        if report.steps != self._moved[0] or _idle(signals):
            self._moved = (report.steps, now)
        limit = max(limits.stale_seconds, signals.still_seconds)
        gauges = signals.scrape.gauges if signals.scrape else None
        if gauges is not None and gauges.asleep:
            return Decision(0, Reason.CLOSED_ASLEEP, "asleep", 1, 1)
        if (age := signals.age(self._moved[1])) > limit:
            surplus = batch.requests if age > max(_YIELD_STALE_SECONDS, 2 * limit) else 0
            return Decision(0, Reason.CLOSED_STALE, "still_seconds", age, limit, surplus=surplus)
        if (
            self._called_at is None
            or report.sync_running
            or report.sync_waiting
            or (signals.sync and signals.sync.open)
        ):
            self._called_at = now
        silence = now - self._called_at
        return residents(report, gauges_of(report, signals.scrape), batch, limits, self._commands.error, silence)

    def _after_fault(self, report: Report, signals: Signals) -> Decision | None:
        """What follows a fault in the scheduler, which then lets no batch work run.

        That is taken out. A managed engine is started anew at the first moment of the next minute in which it has no requests.
        Otherwise vLLM schedules alone, and L1 decides.
        """
        if self._yielded:
            return None
        if self._tripped_at is None:
            log.error("harvest.tripped", faults=report.faults)
            self._tripped_at = signals.now
        batch = signals.batch.requests
        closed = Decision(0, Reason.PLUGIN_TRIPPED, "faults", report.faults, 1, surplus=batch, all_yield=True)
        if batch or report.batch_running:
            return closed
        if self._own and signals.now - self._tripped_at < RENEWAL_SECONDS:
            self.renew = _idle(signals)
            return closed
        self.renew, self._yielded = False, True
        return None

    @property
    def active(self) -> bool:
        """Whether the scheduler plans the steps, by its last report."""
        r = self.report
        return r is not None and self._commands.harvest and r.supported and not (r.tripped or r.silent or self._ignored)

    def close(self) -> None:
        """Let vLLM schedule alone. Remove the folder of a managed engine."""
        if self._pages is not None:
            self._pages.close()
            if self._own and self._folder is not None:
                _remove(self._folder)
        self._pages = self.report = self._tripped_at = None
        self._yielded = self.renew = False
        self._logged = ""


def _own_path(settings: Settings, kind: str) -> Path:
    """The path of a folder or a socket for a running engine, unique to this worker."""
    folder = settings.data_dir / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.engine_name}.{secrets.token_hex(_TOKEN_BYTES)}.{kind}"


def _clear(path: Path, left_behind: Callable[[Path], bool]) -> None:
    """Remove what killed workers of the same engine left behind of this kind."""
    name, _, kind = path.name.rsplit(".", 2)
    for other in path.parent.glob(f"{glob.escape(name)}.{'[0-9a-f]' * 2 * _TOKEN_BYTES}.{kind}"):
        if left_behind(other):
            _remove(other)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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


def gauges_of(report: Report, scrape: Scrape | None) -> EngineGauges:
    """The gauges of the last scrape, with the memory use of the report, which is newer. Without a scrape, only that is known."""
    seen = scrape.gauges if scrape else None
    return replace(seen or EngineGauges(0, 0, 0.0, 0, 0, 0), kv_usage=report.kv_usage)


def residents(
    report: Report, gauges: EngineGauges, batch: BatchLoad, limits: HeadroomLimits, error: float, silence: float = 0.0
) -> Decision:
    """How many batch requests may be in an engine whose own scheduler shares the steps. `silence`: seconds without a caller."""
    free = limits.slots - limits.reserve - report.sync_running - report.sync_waiting
    if report.sync_waiting and report.sync_running + report.batch_running >= limits.slots:
        return Decision(0, Reason.CLOSED_SYNC_WAITING, "sync_waiting", report.sync_waiting, 1)
    if (closed := closed_by(gauges, limits)) is not None:
        return Decision(0, *closed)
    if not report.trusted and report.sync_running:  # batch work takes part in no step
        if report.model_samples < WARM:
            return Decision(0, Reason.CLOSED_LEARNING, "model_samples", report.model_samples, WARM)
        return Decision(0, Reason.CLOSED_MODEL_ERROR, "model_error", report.model_error, error)
    if free <= 0:
        sync = report.sync_running + report.sync_waiting
        return Decision(0, Reason.CLOSED_SLOTS, "sync_requests", sync, limits.slots - limits.reserve)
    allowance = max(limits.floor, min(limits.cap, free))
    if report.batch_waiting >= SPARE:
        allowance = min(allowance, batch.requests)
    comparison = step_comparison(report.step_seconds, report.allowed_seconds, silence)
    return Decision(allowance, Reason.HARVEST, *comparison, prefill_tokens=UNLIMITED_TOKENS)
