"""`slackwater policy …`: apply, compare, try and roll back the rules on requests. Works on the database."""

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from app import clock
from app.admission import policy_versions
from app.causes import cause
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database, user
from app.cli.options import Json, console, settings
from app.db.pool import Connection
from app.engines import catalogue
from app.engines.catalogue import Catalogue
from app.engines.model_registry import with_adopted
from app.policy import replay, samples, service
from app.policy.language import parse
from app.policy.problems import PolicyError
from app.policy.replay import Report
from app.policy.service import PolicyVersion
from app.quantities import many, seconds_of
from app.tenants import service as tenants
from app.user_errors import Failure

app = typer.Typer(help="Apply, compare, try and roll back the rules on requests.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with the rules")]
Answer = TypeVar("Answer")
_COLUMNS = ("rule", "matched", "denied", "rerouted", "observed")
_REMEDY = "Correct the file; nothing was applied."


@app.command("apply")
def apply(file: File, reason: Reason = None, as_json: Json = False) -> None:
    """Check a policy and put it in force. Every process follows it within a second."""
    text = _read(file)
    version, new = _changed(lambda conn, models: policy_versions.apply(conn, text, models, user()), str(file), reason)
    _confirm(version, new, as_json)


@app.command("rollback")
def rollback(
    version: Annotated[
        int | None, typer.Argument(help="number of the version; default: the one before, and each time one more")
    ] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Put an earlier version in force again, as a new version."""
    back, new = _changed(
        lambda conn, models: policy_versions.roll_back(conn, version, models, user()),
        "the earlier version",
        reason,
    )
    _confirm(back, new, as_json)


@app.command("show")
def show(
    version: Annotated[int | None, typer.Argument(help="number of the version; default: the one in force")] = None,
    history: Annotated[bool, typer.Option("--history", help="list the latest versions, without their text")] = False,
    as_json: Json = False,
) -> None:
    """Print the policy in force, or an earlier version of it."""
    if history:
        found = on_database(settings(), lambda conn: service.history(conn, 50))
        if as_json:
            tables.document(console, [_document(each) for each in found])
            return
        rows = [
            (each.policy_id, each.digest[:12], each.by, tables.when(each.at), each.restores or "") for each in found
        ]
        tables.show(console, ("version", "hash", "by", "at", "restores"), rows)
        return
    shown = on_database(settings(), lambda conn: service.find(conn, version) if version else service.newest(conn))
    if as_json:
        tables.document(console, _document(shown) | {"text": shown.text} if shown else None)
    elif shown is None:
        tables.sentence(console, "No policy was ever applied.")
    else:
        tables.raw(console, f"# version {shown.policy_id}, applied by {shown.by} at {tables.when(shown.at)}")
        tables.raw(console, shown.text.rstrip())


@app.command("diff")
def diff(file: File) -> None:
    """Check a policy and show how it differs from the one in force. The exit code is 1 if it does."""
    text = _read(file)

    async def verb(conn: Connection, models: Catalogue) -> PolicyVersion | None:
        parse(text, models)
        return await service.newest(conn)

    version = _with_models(verb, str(file))
    before, name = (version.text, f"version {version.policy_id}") if version else ("", "no policy")
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), name, str(file), lineterm="")
    found = list(lines)
    for line in found:
        tables.raw(console, line)
    if not found:
        tables.sentence(console, f"{file} is what is in force: {name}.")
    raise typer.Exit(1 if found else 0)


@app.command("test")
def try_out(
    file: File,
    last: Annotated[str, typer.Option(help="how far back, like 90m, 24h or 7d; samples are kept for 35 days")] = "7d",
    account: Annotated[str | None, typer.Option(help="only this account")] = None,
    as_json: Json = False,
) -> None:
    """Try a policy on recorded requests and on open batches, without applying it: matches, denials, cost."""
    text, seconds = _read(file), seconds_of(last)
    if seconds is None:
        raise Failure(f"--last {last}: not a length of time.", "Write a number and s, m, h or d, like 7d.")
    since = clock.now() - timedelta(seconds=seconds)

    async def verb(conn: Connection, models: Catalogue) -> tuple[Report, Report]:
        rules = parse(text, models)
        tenant_id = None if account is None else await tenants.find_tenant(conn, account)
        recent = await samples.since(conn, since, tenant_id)
        waiting = await samples.open_batches(conn, tenant_id)
        return replay.replay(rules, recent, models), replay.replay(rules, waiting, models)

    recent, waiting = _with_models(verb, str(file))
    if as_json:
        tables.document(console, {"recent": recent.document(), "open": waiting.document()})
        return
    _show_report(f"The last {last}", recent)
    _show_report("Open batches", waiting)


def _with_models(verb: Callable[[Connection, Catalogue], Awaitable[Answer]], name: str) -> Answer:
    """Call `verb` in a transaction, with the models that the installation has. Raises Failure, which names the policy."""
    current = settings()

    async def call(conn: Connection) -> Answer:
        models = await with_adopted(conn, catalogue.load(current.models_file))
        async with conn.transaction():
            return await verb(conn, models)

    try:
        return on_database(current, call)
    except PolicyError as error:
        raise Failure(f"{name}: {error}", _REMEDY) from None


def _changed(
    verb: Callable[[Connection, Catalogue], Awaitable[tuple[PolicyVersion, bool]]],
    name: str,
    reason: str | None,
) -> tuple[PolicyVersion, bool]:
    """Call a verb that changes the policy. Raises Failure."""
    current = settings()

    async def call(conn: Connection) -> tuple[PolicyVersion, bool]:
        return await verb(conn, await with_adopted(conn, catalogue.load(current.models_file)))

    try:
        return on_database_recorded(current, call, reason)
    except PolicyError as error:
        raise Failure(f"{name}: {error}", _REMEDY) from None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file} cannot be read: {cause(error)}.", "Name a text file with the rules.") from None


def _confirm(version: PolicyVersion, new: bool, as_json: bool) -> None:
    if as_json:
        tables.document(console, _document(version) | {"new": new})
    elif new:
        tables.sentence(console, f"Version {version.policy_id} is in force; every process follows it within a second.")
    else:
        tables.sentence(console, f"Nothing to do: this is version {version.policy_id}, which is in force.")


def _document(version: PolicyVersion) -> dict[str, Any]:
    values = asdict(version)
    named = {"version": values["policy_id"], "hash": values["digest"], "by": values["by"], "at": clock.iso(version.at)}
    return named | {"restores": version.restores}


def _show_report(title: str, report: Report) -> None:
    tables.sentence(console, f"{title}: {many(report.requests, 'request')}, {report.denied:,} of them denied", "bold")
    rows = [
        (rule, f"{each.matched:,}", f"{each.denied:,}", f"{each.rerouted:,}", f"{each.observed:,}")
        for rule, each in report.effects.items()
    ]
    if rows and report.requests:
        tables.show(console, _COLUMNS, rows, whole=("rule",))
    for (asked, answers), requests in report.moved.most_common():
        tables.sentence(console, f"{many(requests, 'request')} to {asked} would go to {answers}")
    for message, requests in report.denials.most_common():
        tables.sentence(console, f"{many(requests, 'request')}: {message}")
    for currency, before in report.before.items():
        after = report.after.get(currency, 0)
        tables.sentence(console, f"cost {before:,.6f} {currency} would be {after:,.6f} {currency}")
