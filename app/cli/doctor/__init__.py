"""`slackwater doctor`: check the machine and the settings, change nothing, and say how to fix each problem."""

from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli import tables
from app.cli.doctor import attached_engine, database, machine, running_installation, services
from app.cli.doctor.check import Check, CheckStatus
from app.settings import Settings
from app.user_errors import Failure

CHECKS: tuple[Callable[[Settings], Check], ...] = (
    machine.python,
    machine.processor,
    machine.memory,
    machine.disk,
    machine.privacy,
    machine.port,
    services.secret_key,
    running_installation.webhooks,
    database.database,
    database.settings_of_server,
    database.pooler,
    database.connections,
    database.standbys,
    services.object_store,
    services.broker,
    running_installation.engine,
    running_installation.model,
    running_installation.installation,
    running_installation.duties,
)

OF_ENGINE = (running_installation.engine, running_installation.model)

_COLOUR = {CheckStatus.OK: "green", CheckStatus.SKIP: "dim", CheckStatus.WARN: "yellow", CheckStatus.FAIL: "red"}


def run_checks(settings: Settings, *, attach: bool = False) -> list[Check]:
    """Run every check, in the order in which problems are best fixed. A check that raises an error counts as failed.

    `attach`: for an engine to attach to; beside an installation that runs, of which `doctor` alone tells, only those of it.
    """
    beside = attach and running_installation.at(settings) is not None
    return [_run(check, settings) for check in (OF_ENGINE if beside else CHECKS)]


def render(checks: list[Check]) -> Table:
    """The checks as a table. Each problem is followed by its fix."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        mark = f"[{_COLOUR[check.status]}]{check.status}[/]"
        fix = f"\n[bold]→ {escape(check.fix)}[/]" if check.fix else ""
        table.add_row(mark, check.name, escape(check.detail) + fix)
    return table


def main(settings: Settings, *, attach: bool = False, as_json: bool = False) -> int:
    """Print the checks, as `run_checks`. Returns 1 if one failed, else 0."""
    with tables.patience("Checking …"):
        checks = run_checks(settings, attach=attach)
    if as_json:
        tables.document(Console(), [asdict(check) for check in checks])
    else:
        Console().print(render(checks))
    return int(any(check.status is CheckStatus.FAIL for check in checks))


def require_engine(settings: Settings, *, answering: bool = False) -> Settings:
    """The settings with the model that the engine serves. Raises Failure if a managed engine could never start, or if an
    attached one contradicts the settings or the catalogue.

    An attached engine may be unreachable, unless `answering` is set.
    """
    if settings.engines:
        return settings  # its worker looks at each engine of the list
    if settings.engine_url:
        return attached_engine.with_served_model(settings, answering=answering)
    for check in (
        _run(check, settings) for check in (machine.processor, machine.memory, services.model, services.engine)
    ):
        if check.status is CheckStatus.FAIL:
            raise Failure(f"{check.name}: {check.detail}", check.fix)
    return settings


def _run(check: Callable[[Settings], Check], settings: Settings) -> Check:
    try:
        return check(settings)
    except Exception as error:  # one broken check must not hide the others
        return Check(check.__name__, CheckStatus.FAIL, f"the check itself failed: {error!r}")
