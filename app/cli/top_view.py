"""One frame of `slackwater top`, from the documents of the API. Pure: what it shows follows from what it is given.

Colours have meanings: teal is harvest, slate are synchronous callers, amber is what somebody should look at, red is broken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from app.cli import tables
from app.cli.text import money_wait, places, plain
from app.quantities import duration

Document = Mapping[str, Any]

HARVEST, SYNC, WARN, BAD, QUIET, TITLE = "#35b8a6", "#8ea5cc", "#dba24a", "#f0746b", "bright_black", "bold"
WIDE = 110  # columns from which the wider tables are shown
NARROW = 18  # characters of a batch's name on a narrow terminal
_STATES = {
    **dict.fromkeys(("ok", "ready"), "green"),
    **dict.fromkeys(("warning", "degraded", "starting", "draining"), WARN),
    **dict.fromkeys(("down", "away"), BAD),
}
_FRESH_SECONDS = 30.0  # from which on a sample is not one of now
_SPARK = 30  # points of a line
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Sight:
    """What was read for one frame. `histories`: the samples of each engine by its name, the oldest first. None, or nothing: not
    known, since it needs a key; `note` says so.
    """

    url: str
    now: datetime
    status: Document
    histories: Mapping[str, Sequence[Document]] = field(default_factory=dict)
    batches: Sequence[Document] | None = None
    more_batches: bool = False
    protection: Document | None = None
    incidents: Sequence[Document] = ()
    note: str = ""


def frame(sight: Sight, width: int, height: int) -> RenderableType:
    """The frame for a terminal of this size. Batches get the lines that are left."""
    wide = width >= WIDE
    parts: list[RenderableType] = [_head(sight, width), _protection(sight, wide=wide), *_problems(sight)]
    parts += [Text(), *_section("Engines, and tokens in the last 10 s", width), _engines(sight, wide=wide)]
    parts += [Text(), *_section("Queue", width), _queue(sight.status["queue"])]
    taken = 13 + 2 * len(sight.status["engines"]) + min(5, len(sight.incidents)) + len(sight.status["problems"])
    if sight.batches:
        parts.append(_batches(sight, wide=wide, most=max(3, height - taken)))
    if sight.incidents:
        parts += [Text(), *_section("Last hour", width), _incidents(sight.incidents[:5])]
    if sight.note:
        parts += [Text(), Text(sight.note, QUIET)]
    return Group(*parts)


def _section(name: str, width: int) -> list[RenderableType]:
    return [Rule(Text(name, TITLE), align="left", style=QUIET, characters="─")]


def _head(sight: Sight, width: int) -> RenderableType:
    state = sight.status["status"]
    grid = Table.grid(
        Column(no_wrap=True, overflow="ellipsis", ratio=1), Column(justify="right", no_wrap=True), expand=True
    )
    left = Text.assemble(("Slackwater ", TITLE), (state, _STATES.get(state, "")), (f"  {sight.url}", QUIET))
    grid.add_row(left, Text(f"{sight.status['version']}  {sight.now.astimezone():%H:%M:%S %Z}", QUIET))
    return grid


def _protection(sight: Sight, *, wide: bool) -> Text:
    """Whether callers are protected, and on a wide terminal the first tokens of the last minutes."""
    callers = sight.status["callers"]
    style = {"protected": TITLE, "slowed": f"{TITLE} {WARN}"}.get(callers["verdict"], QUIET)
    text = Text(f"{callers['headline']}. ", style).append(callers["details"], QUIET)
    if wide and sight.protection is not None:
        spark = _spark([stretch["beside"]["first_token_p95"] for stretch in sight.protection["stretches"]])
        text.append(f"  {spark}", SYNC)
    return text


def _problems(sight: Sight) -> list[RenderableType]:
    return [
        Text(f"▲ {each.get('engine', '')}{': ' if each.get('engine') else ''}{each['message']} {each['remedy']}", WARN)
        for each in sight.status["problems"]
    ]


def _engines(sight: Sight, *, wide: bool) -> RenderableType:
    if not sight.status["engines"]:
        return Text("No engine yet: `slackwater up` or `slackwater gpu-worker` starts one.", QUIET)
    heads = [
        Column("engine", no_wrap=True),
        Column("state", no_wrap=True),
        *(_number(n) for n in ("batch", "callers", "KV")),
    ]
    heads += [_number("harvest t/s"), _number("callers t/s")]
    if wide:
        heads += [Column("last 15 min", no_wrap=True), Column("model", no_wrap=True, overflow="ellipsis")]
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=QUIET)
    notes = []
    for engine in sight.status["engines"]:
        samples = sight.histories.get(engine["name"], ())
        table.add_row(*_engine(engine, samples, sight.now, wide=wide))
        notes.append(_gate(engine))
    return Group(table, *notes)


def _engine(engine: Document, samples: Sequence[Document], now: datetime, *, wide: bool) -> list[Text]:
    """Its requests are those of the status, as the queue counts them. Memory and tokens are of a sample that is new, and not
    of an engine that is down.
    """
    last = samples[-1] if samples and engine["state"] not in ("down", "starting") else None
    if last is not None and (now - datetime.fromisoformat(last["at"])).total_seconds() > _FRESH_SECONDS:
        last = None
    row = [plain(engine["name"]), _coloured(engine["state"])]
    inside, allowed = engine["batch_in_flight"], engine["allowance"]
    places = f"{_count(inside)}{'→' if inside and inside > allowed else '/'}{allowed}"
    row.append(Text("–" if allowed is None else places, HARVEST))
    row.append(Text(_count(engine["sync_in_flight"]), SYNC))
    row.append(Text(f"{last['kv_usage']:.0%}" if last and last["kv_usage"] is not None else "–"))
    for kind, style in (("batch", HARVEST), ("sync", SYNC)):
        row.append(Text(_rate(last, kind, engine[f"{kind}_in_flight"]), style))
    if wide:
        size = -(-len(samples) // _SPARK)
        rates = [_mean(samples[n : n + size]) for n in range(0, len(samples), size or 1)]
        row += [Text(_spark(rates), HARVEST), plain(engine["model"] or "not known")]
    return row


def _gate(engine: Document) -> Text:
    """What the engine does with batch work, and why."""
    wrong = any(problem["severity"] == "error" for problem in engine["problems"])
    style = WARN if wrong or engine["state"] == "down" else QUIET
    inside, allowed = engine["batch_in_flight"], engine["allowance"]
    fell = (
        f"; {inside:,} batch requests are in it, {allowed:,} are allowed from now on"
        if inside and inside > allowed
        else ""
    )
    text = plain(f"  {engine['message']}{fell}")
    text.stylize(style)
    return text


def _queue(queue: Document) -> Text:
    if queue["open_batches"] is None:
        return Text("The queue is not known: the database does not answer.", BAD)
    if not queue["open_batches"]:
        return Text("No batch waits or runs.", QUIET)
    batches = f"{queue['open_batches']:,} open batch" + ("" if queue["open_batches"] == 1 else "es")
    text = Text(f"{batches}; items: {places(queue, 'items_')}").append(money_wait(queue), WARN)
    if queue["oldest_waiting_seconds"] is not None:
        text.append(f"; the oldest has waited {duration(queue['oldest_waiting_seconds'])}", QUIET)
    return text


def _batches(sight: Sight, *, wide: bool, most: int) -> RenderableType:
    batches = sight.batches or ()
    heads = [
        Column("batch", no_wrap=True, overflow="ellipsis", max_width=36 if wide else NARROW),
        Column("", no_wrap=True),
    ]
    heads += [
        _number("done"),
        _number("failed"),
        _number("ends in"),
        Column("waits for", no_wrap=True, overflow="ellipsis", ratio=1),
    ]
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style=QUIET, expand=True)
    for batch in batches[:most]:
        table.add_row(*_batch(batch, wide=wide))
    left = len(batches) - most
    if left > 0 or sight.more_batches:
        text = f"{left:,} more" if left > 0 and not sight.more_batches else "more"
        return Group(table, Text(f"… {text}: `slackwater batch list`", QUIET))
    return table


def _batch(batch: Document, *, wide: bool) -> list[Text]:
    progress, waiting = batch["progress"], batch.get("waiting")
    total, failed = progress["total"], progress["failed"]
    done = progress["succeeded"] + failed
    eta = (batch.get("estimate") or {}).get("eta_seconds")
    label = batch.get("name") or batch["request_id"][:8]
    reason = Text(waiting["message"] if waiting else batch["status"], "" if waiting else HARVEST)
    return [
        plain(label if wide or len(label) <= NARROW else label[: NARROW - 1] + "…"),
        _bar(done / max(1, total), 24 if wide else 10),
        Text(f"{done:,}/{total:,}" if wide else f"{done / max(1, total):.0%}"),
        Text(f"{failed:,}", BAD if failed > total / 100 else QUIET),
        Text(duration(eta) if eta is not None else "–"),
        reason,
    ]


def _incidents(found: Sequence[Document]) -> RenderableType:
    table = Table.grid(
        Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=1), padding=(0, 2, 0, 0), expand=True
    )
    for each in found:
        at, style = tables.when(each["at"], brief=True) or "", BAD if each["trouble"] else ""
        table.add_row(Text(at, QUIET), Text(each["message"], style))
    return table


def _number(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


def _coloured(word: str) -> Text:
    return Text(word, _STATES.get(word, ""))


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _mean(samples: Sequence[Document]) -> float:
    """Harvested tokens a second in these samples."""
    return float(sum(each["batch_tokens"] for each in samples) / max(1, sum(each["seconds"] for each in samples)))


def _rate(sample: Document | None, kind: str, in_flight: int | None) -> str:
    """Tokens a second. Not known of requests that are in the engine now, if the sample is from before the first of them; nor of
    callers whose tokens it has not yet counted.
    """
    if sample is None:
        return "–"
    tokens, late = sample[f"{kind}_tokens"], kind == "sync" if sample[kind] else in_flight
    if late and not tokens:
        return "–"
    return f"{tokens / max(sample['seconds'], 0.001):,.0f}"


def _ms(milliseconds: float) -> str:
    return duration(milliseconds / 1000)


def _bar(share: float, width: int) -> Text:
    full = min(width, round(share * width))
    return Text.assemble(("━" * full, HARVEST), ("─" * (width - full), QUIET))


def _spark(values: Sequence[float | None]) -> str:
    """A line of bars. A value that is not known is a blank."""
    most = max((value for value in values if value is not None), default=0)
    return "".join(" " if v is None else _BARS[min(7, int(v / most * 7.99))] if most else _BARS[0] for v in values)
