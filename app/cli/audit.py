"""`slackwater audit …`: read, check and export the audit log. Works on the database and the object store."""

from pathlib import Path
from typing import Annotated, Any

import typer

from app import clock
from app.audit import check, checkpoints, log
from app.audit import export as exporting
from app.audit.export import Exported
from app.audit.log import Entry
from app.audit.record import DONE
from app.audit.verifier import Verifier
from app.causes import cause
from app.cli import tables
from app.cli.database import on_database
from app.cli.options import Json, console, settings
from app.db.pool import Connection
from app.errors import StorageError
from app.quantities import many
from app.storage.store import Store
from app.user_errors import Failure

app = typer.Typer(help="Read, check and export the audit log.", no_args_is_help=True)

_COLUMNS = ("record", "at", "who", "account", "act", "target", "outcome", "row")
_Account = Annotated[
    str | None, typer.Option(help="only this account; empty: what belongs to no account; default: all")
]
_SHOWN = 100


@app.command("list")
def list_(
    account: Annotated[str | None, typer.Option(help="only this account")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many, the newest")] = 50,
    before: Annotated[int | None, typer.Option(min=1, help="only records with a lower number")] = None,
    as_json: Json = False,
) -> None:
    """List the newest records: who did, revealed or was refused what."""
    found = on_database(settings(), lambda conn: log.latest(conn, account=account, before=before, limit=limit))
    if as_json:
        tables.document(console, [_document(each) for each in found])
    else:
        tables.show(console, _COLUMNS, map(_row, found), whole=("record", "act"), wide=("row",))


@app.command("verify")
def verify(
    account: _Account = None,
    retention: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="DAYS",
            help="how long rows have to be kept at least; 0: for ever; default: SLACKWATER_AUDIT_RETENTION_DAYS",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check rows, seals and checkpoints, in the database and the object store. The exit code is 1 if anything does not fit."""
    current = settings()
    keys = checkpoints.known_keys(current)
    days = current.audit_retention_days if retention is None else retention

    async def verb(conn: Connection) -> Verifier:
        await _check_sees(conn, account)
        return await check.verify(conn, _store(), keys, account, days)

    found = _with_store(lambda: on_database(current, verb))
    if as_json:
        counts = {"rows": found.rows, "checkpoints": found.checkpoints}
        tables.document(console, counts | {"problems": found.problems})
    else:
        for problem in found.problems[:_SHOWN]:
            tables.sentence(console, problem, "red")
        if len(found.problems) > _SHOWN:
            tables.sentence(console, f"… and {len(found.problems) - _SHOWN:,} more", "red")
        tables.sentence(console, _summary(found))
    if found.problems:
        raise typer.Exit(1)


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a folder that has no export yet")],
    account: _Account = None,
    as_json: Json = False,
) -> None:
    """Write the sealed rows, the checkpoints and `verify.py`, which checks them and needs only Python."""
    current = settings()
    keys = checkpoints.known_keys(current)

    async def verb(conn: Connection) -> Exported:
        await _check_sees(conn, account)
        try:
            return await exporting.export(conn, _store(), keys, folder, account)
        except OSError as error:
            raise Failure(
                f"{folder} cannot be written: {cause(error)}.", "Name an empty folder, or a new one."
            ) from None

    made = _with_store(lambda: on_database(current, verb))
    if as_json:
        tables.document(console, {"folder": str(folder), "rows": made.rows, "checkpoints": made.checkpoints})
        return
    text = f"{many(made.rows, 'row')} and {many(made.checkpoints, 'checkpoint')} are in {folder}."
    tables.sentence(console, f"{text} `python {folder / 'verify.py'} --key KEY` checks them.", "green")


async def _check_sees(conn: Connection, account: str | None) -> None:
    """Raise Failure where all chains are wanted, and the database may hide some of them."""
    if account is None and await check.hides_rows(conn):
        raise Failure(
            "Row-level security may hide chains from this database role, and hidden rows would count as missing.",
            "Name one account with --account, or use the owner of the database.",
        )


@app.command("key")
def key(as_json: Json = False) -> None:
    """Print the public key of the checkpoints. Publish it where nobody who can change the database can change it."""
    public = checkpoints.Signer(settings()).public.hex()
    if as_json:
        tables.document(console, {"key": public})
    else:
        tables.raw(console, public)


def _store() -> Store:
    return Store.of(settings())


def _with_store(verb: Any) -> Any:
    try:
        return verb()
    except StorageError as error:
        raise Failure(str(error), "Check SLACKWATER_STORAGE_URL; the checkpoints lie there.") from None


def _summary(found: Verifier) -> str:
    counts = f"{many(found.rows, 'row')} and {many(found.checkpoints, 'checkpoint')} were checked"
    return f"{counts}: {many(len(found.problems), 'problem')}." if found.problems else f"{counts}; everything fits."


def _row(each: Entry) -> tuple[object, ...]:
    outcome = "" if each.outcome == DONE else each.outcome
    return (
        *(each.audit_id, tables.when(each.at), each.who, each.account, each.act, each.target, outcome),
        "not sealed" if each.seq is None else each.seq,
    )


def _document(each: Entry) -> dict[str, Any]:
    names = (
        "who",
        "role",
        "account",
        "act",
        "target",
        "outcome",
        "reason",
        "before",
        "after",
        "correlation",
        "seq",
        "signed",
    )
    return {"record": each.audit_id, "at": clock.iso(each.at)} | {name: getattr(each, name) for name in names}
