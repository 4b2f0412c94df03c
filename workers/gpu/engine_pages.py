"""The control pages of one engine, as its worker uses them: the same commands for every rank, one report of all of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app import clock
from workers.engine.control_page import Commands, ControlPage, Report
from workers.engine.page_folder import PageFolder

LOOK_SECONDS = 0.2  # between two looks for new and dead pages


class EnginePages:
    """The pages in a folder. Only the worker that controls the engine commands them."""

    def __init__(self, folder: Path) -> None:
        self.folder = PageFolder(folder)
        self._last: Commands | None = None
        self._used: list[ControlPage] = []
        self._looked_at = -math.inf

    def command(self, commands: Commands) -> None:
        """Command every rank. Pages that can no longer be used together let vLLM schedule alone."""
        now = clock.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            was, self._looked_at = self._used, now
            self.folder.look()
            self._used = self.folder.pages
            if was and not self._used:
                self._release(was)
        self._last = commands
        for page in self._used:
            page.command(commands)

    def report(self) -> Report | None:
        """What the ranks report together; None unless all of them do."""
        reports = [page.report() for page in self._used]
        known = [report for report in reports if report is not None]
        return combined(known) if known and len(known) == len(reports) else None

    def close(self) -> None:
        """Let vLLM schedule alone, and unmap the pages."""
        self._release(self._used)
        self._used, self._looked_at = [], -math.inf
        self.folder.close()

    def _release(self, pages: Sequence[ControlPage]) -> None:
        for page in pages:
            if self._last is not None and not page.closed:
                page.command(replace(self._last, harvest=False))


def combined(reports: Sequence[Report]) -> Report:
    """One report for all ranks: sums of requests, tokens and events, the worst of all else. The slowest step is shown."""
    if len(reports) == 1:
        return reports[0]
    slowest = max(reports, key=lambda report: report.step_seconds)
    return replace(
        slowest,
        at=max(report.at for report in reports),
        steps=sum(report.steps for report in reports),
        supported=all(report.supported for report in reports),
        tripped=any(report.tripped for report in reports),
        silent=any(report.silent for report in reports),
        trusted=all(report.trusted for report in reports),
        planning=any(report.planning for report in reports),
        slots=sum(report.slots for report in reports),
        sync_running=sum(report.sync_running for report in reports),
        sync_waiting=sum(report.sync_waiting for report in reports),
        batch_running=sum(report.batch_running for report in reports),
        batch_frozen=sum(report.batch_frozen for report in reports),
        batch_waiting=sum(report.batch_waiting for report in reports),
        evictions=sum(report.evictions for report in reports),
        freezes=sum(report.freezes for report in reports),
        faults=sum(report.faults for report in reports),
        sync_tokens=sum(report.sync_tokens for report in reports),
        batch_tokens=sum(report.batch_tokens for report in reports),
        plan_seconds=max(report.plan_seconds for report in reports),
        kv_usage=max(report.kv_usage for report in reports),
        model_error=max(report.model_error for report in reports),
        model_samples=min(report.model_samples for report in reports),
    )
