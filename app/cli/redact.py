"""`slackwater redact`: finds what a rule set later, or a better detector, would have redacted, and redacts it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from app import clock
from app.admission.redaction import Redaction, redaction_of
from app.admission.stored import Search
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import redacting as batches
from app.batches import redacting_files as files
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database
from app.cli.options import Json, console, errors
from app.cli.options import settings as configured
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.engines.model_registry import with_adopted
from app.pipelines import redacting as pipelines
from app.policy import service
from app.policy.language import parse
from app.policy.match import sensitive_rule
from app.policy.vaults import Vaults, hash_key
from app.quantities import many
from app.sealing.keyring import Keyring
from app.sessions import redacting as sessions
from app.sessions.service import Keeper
from app.settings import Settings
from app.tenants import service as tenants
from app.user_errors import Failure

_COLUMNS = ("account", "where", "searched", "with values", "redacted", "values")
_LINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Account:
    """An account whose requests a rule redacts. `redaction`: of what is stored."""

    tenant_id: int
    name: str
    redaction: Redaction


def redact(
    check: Annotated[
        bool, typer.Option("--check", help="count what is found; the exit code is 1 if something is")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="redact what is found; the exit code is 1 if something could not be")
    ] = False,
    account: Annotated[str | None, typer.Option(help="name of one account; default: all that a rule redacts")] = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Find stored values that the policy in force would have redacted, and redact them.

    Use it after a rule or a detector came later than what it is for. It searches batches, files, conversations and responses.
    """
    if check == apply:
        raise typer.BadParameter("choose --check or --apply")
    settings = configured()
    with embedded.running(settings):
        if apply:
            found = on_database_recorded(settings, lambda conn: accounts(conn, settings, account, record=True), reason)
        else:
            found = on_database(settings, lambda conn: accounts(conn, settings, account, record=False))
        with _progress() as on_entry:
            searches = [(each.name, _searched(settings, each, Search(apply, on_entry))) for each in found]
    _show(searches, as_json)
    places = [place for _, search in searches for place in search.places.values()]
    if any(place.left for place in places) or (check and any(place.having for place in places)):
        raise typer.Exit(1)


async def accounts(conn: Connection, settings: Settings, name: str | None, *, record: bool) -> Sequence[Account]:
    """The accounts to be searched. `record`: the audit log says so. Raises AccountUnknown, Failure."""
    if name is not None:
        await tenants.find_tenant(conn, name)  # a wrong name is not an account without a rule
    version = await service.newest(conn)
    models = await with_adopted(conn, catalogue.load(settings.models_file))
    rules = () if version is None else parse(version.text, models, lenient=True)
    secret = secret_key(settings)
    found = []
    for tenant in await tenants.every(conn):
        if name not in (None, tenant.account_id):
            continue
        rule = sensitive_rule(rules, tenant.account_id)
        vaults = Vaults(secret, tenant.tenant_id)
        redaction = None if rule is None else redaction_of(rule, vaults, hash_key(secret), id)
        if redaction is not None:
            found.append(Account(tenant.tenant_id, tenant.account_id, redaction.for_stored()))
            if record:
                await log.record(conn, Record(Act.ACCOUNT_REDACT, tenant.account_id, tenant.account_id))
    if not found:
        whom = "of any account" if name is None else f"of the account {name}"
        raise Failure(
            f"No rule in force redacts requests {whom}.", "`slackwater policy apply` sets one: docs/redaction.md."
        )
    return found


async def search_account(database: Database, settings: Settings, account: Account, search: Search) -> None:
    """Search all that is stored of an account."""
    order = database, settings, account.tenant_id, account.redaction, search
    await files.redact(*order)  # first: what is made of them meanwhile is found below
    await pipelines.search_definitions(*order)
    keeper = Keeper(database, Keyring.of(settings), account.redaction.vaults, account.tenant_id)
    await batches.redact(*order, await sessions.open_batches(keeper))
    await sessions.redact(keeper, account.redaction, search)


def _searched(settings: Settings, account: Account, search: Search) -> Search:
    async def run(_: Connection) -> None:
        async with Database.of(settings, "redact") as database:
            await search_account(database, settings, account, search)

    on_database(settings, run)
    return search


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """A function to call after each entry: it counts on a terminal, and prints a line now and then into a pipe."""
    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} searched"), TimeElapsedColumn()
    count, printed = 0, clock.monotonic()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("")

        def one() -> None:
            nonlocal count, printed
            count += 1
            bar.update(task, advance=1)
            if not errors.is_terminal and clock.monotonic() - printed >= _LINE_SECONDS:
                printed = clock.monotonic()
                errors.print(f"{count:,} searched", soft_wrap=True)

        yield one


def _show(searches: Sequence[tuple[str, Search]], as_json: bool) -> None:
    entries = [(name, where, place) for name, search in searches for where, place in search.places.items()]
    if as_json:
        tables.document(
            console,
            [
                {
                    "account": name,
                    "where": where,
                    "searched": place.searched,
                    "with_values": place.having,
                    "redacted": place.redacted,
                    "values": dict(place.values),
                    "left": dict(place.left),
                }
                for name, where, place in entries
            ],
        )
        return
    rows = [
        (
            name,
            where,
            place.searched,
            place.having,
            place.redacted,
            ", ".join(f"{k} {n:,}" for k, n in place.values.items()),
        )
        for name, where, place in entries
    ]
    tables.show(console, _COLUMNS, rows, numbers=_COLUMNS[2:5])
    for name, where, place in entries:
        for why, count in place.left.items():
            tables.sentence(console, f"{name}, {where}: {count:,} left: {why}.", "yellow")
    having, redacted = (sum(getattr(place, n) for *_, place in entries) for n in ("having", "redacted"))
    if not having:
        tables.sentence(console, "Nothing was found.", "green")
    elif redacted:
        tables.sentence(console, f"{many(redacted, 'record')} redacted.", "green")
    else:
        tables.sentence(console, "`slackwater redact --apply` redacts what is found.")
