"""How the commands print a pipeline: its stages with bars, what each waits for, a check, the lineage of a line."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from app import clock
from app.cli import tables
from app.cli.text import done_of, plain
from app.quantities import duration, many

Object = dict[str, Any]
COLUMNS = ("stage", "model", "done", "failed", "passed", "dropped", "tokens", "waits for")
FINAL = ("completed", "failed", "cancelled", "expired")
_STYLES = {
    "completed": "green",
    "in_progress": "green",
    "failed": "red",
    "expired": "red",
    "paused": "yellow",
    "cancelling": "yellow",
}
_BAR = 16
_ITEM_STYLES = {"done": "green", "failed": "red", "dropped": "dim", "waiting": "yellow", "to_come": "dim"}
_SIGNS = {"done": "✓", "failed": "✗", "waiting": "…", "to_come": "·", "dropped": "–"}


def words(state: str) -> str:
    """A state as people read it."""
    return state.replace("_", " ")


def facts(pipeline: Object) -> dict[str, object]:
    """The lines above the stages, by name."""
    counts, waiting = pipeline["request_counts"], pipeline.get("waiting") or {}
    return {
        "pipeline": pipeline["id"],
        "name": pipeline["name"],
        "state": words(pipeline["status"]) + (f", run {pipeline['run']}" if pipeline["run"] > 1 else ""),
        "input": None if pipeline["inputs"] is None else many(pipeline["inputs"], "line"),
        "items": done_of(counts["completed"], counts["failed"], f"{counts['total']:,}"),
        "cost": _cost(pipeline["cost"]),
        "created": tables.when(_moment(pipeline["created_at"])),
        "ended": ended(pipeline),
        "expires": tables.when(_moment(pipeline["expires_at"])),
        "done": _eta(pipeline.get("eta")),
        "waits": waiting.get("message"),
    }


def created(pipeline: Object, *, brief: bool) -> str | None:
    """When it was created. `brief`: without the day if that is today."""
    return tables.when(_moment(pipeline["created_at"]), brief=brief)


def ended(pipeline: Object) -> str | None:
    """When it ended; None: it has not."""
    return tables.when(_moment(pipeline["ended_at"]))


def rows(pipeline: Object, *, bars: bool) -> list[Sequence[object]]:
    """A row of `COLUMNS` for each stage. `bars`: on a terminal."""
    return [_row(each, bars=bars) for each in pipeline["stages"]]


def _row(stage: Object, *, bars: bool) -> Sequence[object]:
    counts, items = stage["request_counts"], stage["items"]
    ended = counts["completed"] + counts["failed"]
    more = "+" if stage["more_expected"] else ""
    done: object = f"{ended:,}/{counts['total']:,}{more}"
    if stage["n"] == 0 and not stage["model"]:
        done = many(counts["total"], "line")
    elif bars:
        done = Text.assemble(bar(ended, counts["total"]), " ", str(done))
    tokens = stage["usage"]["total_tokens"]
    failed = Text(f"{counts['failed']:,}", "red") if counts["failed"] else None
    numbers = [None if not items[name] else f"{items[name]:,}" for name in ("passed", "dropped")]
    waits = stage["waiting"]["message"] if stage["waiting"] else Text(words(stage["status"]), _style(stage["status"]))
    name = stage["id"] if stage["after"] in (None, "input") or not bars else f"  {stage['id']}"
    return name, stage["model"], done, failed, *numbers, f"{tokens:,}" if tokens else None, waits


def live(pipeline: Object) -> RenderableType:
    """The picture that `watch` redraws."""
    heads = [Column(name, no_wrap=True) for name in COLUMNS[:3]]
    heads += [Column(name, justify="right", no_wrap=True) for name in COLUMNS[3:7]]
    heads.append(Column(COLUMNS[7], overflow="ellipsis", no_wrap=True, ratio=1))
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    for row in rows(pipeline, bars=True):
        table.add_row(*(cell if isinstance(cell, Text) else plain("–" if cell is None else cell) for cell in row))
    parts = [words(pipeline["status"]), _eta(pipeline.get("eta")), _cost(pipeline["cost"])]
    head = Text.assemble(
        (pipeline["name"] or pipeline["id"], "bold"), "  ", ("  ".join(part for part in parts if part), "dim")
    )
    return Group(head, table)


def brief(pipeline: Object) -> str:
    """One line for a pipe."""
    done = "  ".join(
        f"{each['id']} {each['request_counts']['completed'] + each['request_counts']['failed']}"
        f"/{each['request_counts']['total']}"
        for each in pipeline["stages"][1:]
    )
    return f"{words(pipeline['status'])}  {done}  {_eta(pipeline.get('eta')) or ''}".rstrip()


def bar(done: int, total: int, width: int = _BAR) -> Text:
    """A bar of the share that is done."""
    full = round(width * done / total) if total else 0
    return Text.assemble(("━" * full, "cyan"), ("─" * (width - full), "dim"))


def sample(of: Object) -> str:
    """What a line of a check's sample becomes in a stage."""
    if of.get("dropped"):
        return "Dropped: its condition does not hold, or its list is empty."
    told = of.get("body", of.get("error"))
    return json.dumps(told, indent=2, ensure_ascii=False) if told else "Made of an answer, which a check does not have."


def check(found: Object) -> list[Sequence[object]]:
    """The forecast of a check: a row for each stage, and their sum."""
    named = [(each["id"], each["model"], each["most"]) for each in found["stages"]]
    return [_forecast(*each) for each in [*named, ("in all", None, found["most"])]]


CHECK_COLUMNS = ("stage", "model", "items", "tokens in", "tokens out", "cost", "time")


def _forecast(name: str, model: str | None, most: Object) -> Sequence[object]:
    cost = None if most["cost"] is None else f"{most['cost']:,.4f} {most['currency']}"
    time = None if most["seconds"] is None else duration(most["seconds"])
    return name, model, f"{most['items']:,}", f"{most['prompt_tokens']:,}", f"{most['answer_tokens']:,}", cost, time


def lineage(found: Object) -> list[Sequence[object]]:
    """A row for each item that a line became, in the order of the stages."""
    shown: list[Sequence[object]] = []
    for stage in found["stages"]:
        if not stage["items"]:
            shown.append((_sign(stage["state"]), stage["stage"], None, stage["model"], None, stage["why"]))
        for item in stage["items"]:
            tokens = (
                None if item["prompt_tokens"] is None else f"{item['prompt_tokens']:,}/{item['completion_tokens']:,}"
            )
            shared = " (with others)" if stage["shared"] else ""
            row = stage["stage"], f"{item['seq']}{shared}", item["model"], tokens, item["why"]
            shown.append((_sign(item["state"]), *row))
        if stage["truncated"]:
            shown.append((_sign(stage["state"]), stage["stage"], "and more", None, None, None))
    return shown


LINEAGE_COLUMNS = ("", "stage", "item", "model", "tokens", "why")


def _sign(state: str) -> Text:
    return Text(f"{_SIGNS.get(state, '?')} {words(state)}", _ITEM_STYLES.get(state, ""))


def _style(state: str) -> str:
    return _STYLES.get(state, "")


def _cost(cost: Object | None) -> str | None:
    if cost is None:
        return None
    budget = "" if cost["budget"] is None else f" of {cost['budget']:,.2f}"
    return f"{cost['spent']:,.4f}{budget} {cost['currency'] or 'USD'}"


def _eta(eta: int | None) -> str | None:
    return None if eta is None else f"in about {duration(max(0.0, eta - clock.now().timestamp()))}"


def _moment(unix: int | None) -> datetime | None:
    return None if unix is None else datetime.fromtimestamp(unix, UTC)
