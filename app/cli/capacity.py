"""`slackwater capacity`: what a fleet asks of one PostgreSQL, and what runs out first."""

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import capacity_model as model
from app.cli import tables
from app.cli.options import Json, console
from app.cli.options import settings as configured

_COLUMNS = ("need", "amount", "of")


def capacity(
    engines: Annotated[int, typer.Option(min=1, help="engines of all models together")] = 1,
    tokens_per_second: Annotated[
        float, typer.Option(min=1, help="of one engine with batch work alone: prompts and answers")
    ] = 20_000,
    tokens_per_item: Annotated[float, typer.Option(min=1, help="of a request and its answer")] = 1_300,
    bytes_per_item: Annotated[float, typer.Option(min=1, help="of a request and its answer, in the database")] = 4_000,
    days: Annotated[
        float | None, typer.Option(min=0, help="how long batches are kept; SLACKWATER_RETENTION_DAYS if not given")
    ] = None,
    cores: Annotated[float, typer.Option(min=0.1, help="of the database server")] = 8,
    max_connections: Annotated[int, typer.Option(min=1, help="of the database server")] = 100,
    disk_gb: Annotated[float, typer.Option(min=1, help="of the database server")] = 1_000,
    engines_per_process: Annotated[
        int | None,
        typer.Option(min=1, help="of a worker process; SLACKWATER_ENGINES_MAX, or 1 without SLACKWATER_ENGINES"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate what a fleet at full load needs of one PostgreSQL, and what runs out first.

    Cores are twice what is busy. The constants and where they were measured are in the output of --json.
    """
    settings = configured()
    kept = settings.retention_days if days is None else days
    if not kept:
        raise typer.BadParameter("batches are kept for ever: say for how long with --days")
    fleet = model.Fleet(
        engines=engines,
        tokens_per_second=tokens_per_second,
        tokens_per_item=tokens_per_item,
        bytes_per_item=bytes_per_item,
        days=kept,
        chunk_tokens=settings.chunk_tokens,
        chunk_items=settings.chunk_items,
        heartbeat_seconds=settings.heartbeat_seconds,
        connections_per_process=settings.database_pool_size,
        engines_per_process=engines_per_process or (settings.engines_max if settings.engines else 1),
    )
    found = model.needs(fleet, model.Server(cores, max_connections, disk_gb))
    tightest = model.first_bottleneck(found)
    if as_json:
        tables.document(console, _document(fleet, found, tightest))
        return
    tables.show(console, _COLUMNS, [_row(need) for need in found], numbers=("amount",))
    verb = "is too little" if tightest.share > 1 else "runs out first"
    tables.sentence(console, f"What {verb}: {tightest.name}, {tightest.share:.0%} of what there is. {tightest.remedy}")


def _row(need: model.Need) -> tuple[str, str, str | None]:
    limit = None if need.limit is None else f"{need.limit:,.0f}, {need.share:.0%}"
    digits = 0 if need.needed >= 100 else 1 if need.needed >= 1 else 2
    return f"{need.name} {need.unit}".strip(), f"{need.needed:,.{digits}f}", limit


def _document(fleet: model.Fleet, found: list[model.Need], tightest: model.Need) -> dict[str, object]:
    needs = [
        {"name": need.name, "needed": need.needed, "unit": need.unit, "limit": need.limit, "share": need.share}
        for need in found
    ]
    constants = {name.lower(): asdict(getattr(model, name)) for name in model.CONSTANTS}
    constants["connections"] = asdict(model.Constant(fleet.connections_per_process, model.POOL_SIZE))
    return {"needs": needs, "first": tightest.name, "remedy": tightest.remedy, "constants": constants}
