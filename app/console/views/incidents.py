"""What happened in the installation: one timeline, what is still broken, and how long the rest lasted. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app import places
from app.access.roles import Viewer
from app.batches import incidents as timeline
from app.changes.kinds import TROUBLE, ChangeKind
from app.changes.service import Change
from app.console.views import batch_filter, plots, problems, signs, text, times
from app.console.views.batches import few
from app.console.views.plots import Bar, Lane
from app.console.views.problems import Problems
from app.console.views.signs import Sign
from app.sentences import ended

PATH = "/console/incidents"
RANGES = {"1h": ("1 h", 3600.0), "24h": ("24 h", 86_400.0), "7d": ("7 d", 604_800.0), "35d": ("35 d", 3_024_000.0)}
USUAL_RANGE = "24h"
VIEWS = {"all": "All", "trouble": "Troubles and their ends", "other": "Starts and versions"}
_ENDS = {
    ChangeKind.ENGINE_DOWN: (ChangeKind.ENGINE_READY, ChangeKind.ENGINE_RELEASED),
    ChangeKind.WORKER_LOST: (ChangeKind.ENGINE_READY, ChangeKind.ENGINE_RELEASED),
    ChangeKind.GATE_CLOSED: (ChangeKind.GATE_OPENED, ChangeKind.ENGINE_DOWN, ChangeKind.ENGINE_RELEASED),
    ChangeKind.BREAKER_OPENED: (ChangeKind.BREAKER_CLOSED, ChangeKind.ENDPOINT_DISABLED),
    ChangeKind.BUDGET_SPENT: (ChangeKind.BUDGET_RENEWED,),
    ChangeKind.ENGINE_DRAINED: (ChangeKind.ENGINE_UNDRAINED,),
    ChangeKind.DATABASE_LOST: (ChangeKind.DATABASE_BACK,),
}
ROUTINE = (
    ChangeKind.STEWARD_LEADS,
    ChangeKind.PART_STARTED,
    ChangeKind.VERSION_CHANGED,
    ChangeKind.ENGINE_VERSION,
    ChangeKind.ENGINE_REPLACED,
)
OF_VIEW: dict[str, tuple[ChangeKind, ...]] = {
    "all": (),
    "trouble": tuple(kind for kind in ChangeKind if kind not in ROUTINE),
    "other": ROUTINE,
}
_SIGNS = {
    ChangeKind.ENGINE_DOWN: signs.BROKEN,
    ChangeKind.WORKER_LOST: signs.BROKEN,
    ChangeKind.GATE_CLOSED: signs.LOOK,
    ChangeKind.BREAKER_OPENED: signs.LOOK,
    ChangeKind.ENDPOINT_DISABLED: signs.BROKEN,
    ChangeKind.BUDGET_SPENT: signs.MONEY,
    ChangeKind.ENGINE_READY: signs.DONE,
    ChangeKind.GATE_OPENED: signs.DONE,
    ChangeKind.BREAKER_CLOSED: signs.DONE,
    ChangeKind.BUDGET_RENEWED: signs.DONE,
    ChangeKind.ENGINE_DRAINED: signs.PAUSED,
    ChangeKind.ENGINE_UNDRAINED: signs.DONE,
    ChangeKind.PART_DIED: signs.BROKEN,
    ChangeKind.UP_KILLED: signs.BROKEN,
    ChangeKind.DATABASE_LOST: signs.BROKEN,
    ChangeKind.DATABASE_BACK: signs.DONE,
}
_OF_PARTS = (
    ChangeKind.PART_STARTED,
    ChangeKind.VERSION_CHANGED,
    ChangeKind.PART_DIED,
)  # whose subject is a common noun
_LANES = {"engine": "Engines", "worker": "Engines", "gate": "Gates", "breaker": "Webhooks", "endpoint": "Webhooks",
          "budget": "Budgets", "part": "Parts", "up": "Parts", "database": "Database"}  # fmt: skip
_SHARPEST = 0.5  # per cent of the time shown that a bar has at least


@dataclass(frozen=True, slots=True)
class Span:
    """A trouble, or a drain, with its end. `until`: None: it lasts."""

    change: Change
    until: datetime | None

    @property
    def begin(self) -> datetime:
        """Since when: a lost worker was last heard of before its lease ended."""
        silent = self.change.data.get("silent_seconds") if self.change.kind == ChangeKind.WORKER_LOST else None
        return self.change.at - timedelta(seconds=silent or 0.0)

    def seconds(self, now: datetime) -> float:
        """How long it lasted, or has lasted until now."""
        return ((self.until or now) - self.begin).total_seconds()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `recent`: the changes of the time shown that begin or end something, newest first. `problems`: of
    the installation now.
    """

    changes: Sequence[Change]
    more: bool
    recent: Sequence[Change]
    since: datetime
    problems: Problems = ()


def sign_of(kind: str) -> Sign:
    """The sign of a kind of change."""
    return _SIGNS.get(ChangeKind(kind), signs.NOTE) if kind in {*ChangeKind} else signs.NOTE


def spans(changes: Sequence[Change]) -> list[Span]:
    """Each trouble of these changes, which are the newest first, with the change of the same subject that ended it."""
    later: dict[tuple[str, str | None], list[Change]] = {}
    found = []
    for change in changes:
        of_subject = later.setdefault((change.subject, change.account_id), [])
        if change.kind in _ENDS or change.kind in TROUBLE:
            ends = _ENDS.get(ChangeKind(change.kind), ())
            end = next((each.at for each in reversed(of_subject) if each.kind in ends), None)
            if not ends or (change.kind == ChangeKind.WORKER_LOST and "engine" not in change.data):
                end = change.at  # no end will be noted; the chunks of a worker without an engine are back
            found.append(Span(change, end))
        of_subject.append(change)
    return found


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    known = spans(seen.recent)
    open_now = [span for span in known if span.until is None]
    lasted = {span.change.change_id: span for span in known}
    chosen, shown, subject = params.get("range", USUAL_RANGE), params.get("view", "all"), params.get("q", "")
    keep = {"range": chosen if chosen != USUAL_RANGE else "", "view": shown if shown != "all" else ""}
    return {
        "title": title(open_now, seen.problems),
        "sign": _worst(open_now, seen.problems),
        "problems": problems.shown(seen.problems),
        "rest": rest(open_now, known, chosen, now),
        "ranges": [
            {"name": name, "href": batch_filter.address(PATH, range=key, view=keep["view"], q=subject), "here": key == chosen}
            for key, (name, _) in RANGES.items()
        ],
        "tabs": [
            {"name": name, "href": batch_filter.address(PATH, range=keep["range"], view=key if key != "all" else "", q=subject),
             "here": key == shown, "count": ""}
            for key, name in VIEWS.items()
        ],
        "chips": [{"name": "about", "value": subject, "raw": subject, "without": batch_filter.address(PATH, **keep)}]
        if subject else [],
        "keep": [(name, value) for name, value in keep.items() if value],
        "lanes": lanes(known, seen.since, now),
        "ticks": plots.ticks(seen.since, now),
        "days": _days(seen.changes, lasted, now),
        "is_filtered": bool(subject or shown != "all"),
        "clear": batch_filter.address(PATH, range=keep["range"]),
        "pages": _pages(seen, params, keep, subject),
    }  # fmt: skip


def title(open_now: Sequence[Span], found: Problems = ()) -> str:
    """What is broken at this moment, or the problems of the installation."""
    troubles = [span for span in open_now if span.change.kind in TROUBLE]
    if not troubles:
        return problems.title(found) if found else "Nothing is broken now"
    if len(troubles) == 1:
        return words(troubles[0].change).rstrip(".")
    return f"{text.sentence(few(len(troubles)))} things are broken now"


def _worst(open_now: Sequence[Span], found: Problems) -> Sign:
    shown = [sign_of(span.change.kind) for span in open_now] + ([problems.sign(found)] if found else [])
    return next((sign for sign in (signs.BROKEN, signs.LOOK, signs.MONEY, signs.PAUSED) if sign in shown), signs.DONE)


def rest(open_now: Sequence[Span], known: Sequence[Span], chosen: str, now: datetime) -> str:
    """Since when things are broken, and how much there was in the time shown."""
    said = []
    troubles = [span for span in open_now if span.change.kind in TROUBLE]
    if len(troubles) == 1:
        said.append(f"For {times.span(troubles[0].seconds(now))}.")
    elif troubles:
        said += [ended(words(span.change)) for span in troubles[:2]]
    counted = [span for span in known if span.change.kind in TROUBLE]
    number, longest = len(counted), max(counted, key=lambda span: span.seconds(now), default=None)
    period = {"1h": "hour", "24h": "day", "7d": "week", "35d": "35 days"}[chosen]
    if longest is not None:
        lasts = f"{times.span(longest.seconds(now))}{'' if longest.until else ' until now'}"
        troubled = f"{text.sentence(few(number))} {'trouble' if number == 1 else 'troubles'} in the last {period}"
        said.append(f"{troubled}, the longest for {lasts}." if longest.seconds(now) else f"{troubled}.")
    else:
        said.append(f"No trouble in the last {period}.")
    return text.inert(" ".join(said), 600)[0]


def lanes(known: Sequence[Span], start: datetime, end: datetime) -> list[Lane]:
    """The troubles over time, by what they befell."""
    groups: dict[str, list[Span]] = {name: [] for name in _LANES.values()}
    for span in known:
        groups[_LANES[span.change.kind.partition(".")[0]]].append(span)
    found = []
    for name, members in groups.items():
        bars = []
        for span in members:
            x = 100 * plots.place(span.begin, start, end)
            width = max(_SHARPEST, 100 * plots.place(span.until or end, start, end) - x)
            told = f"{span.change.at:%H:%M:%S} {words(span.change)}"
            kind = {"bad": "r-bad", "warn": "r-warn"}.get(sign_of(span.change.kind).colour, "r-full")
            bars.append(Bar(kind, round(min(x, 100 - width), 2), round(width, 2), told))
        found.append(Lane(name, f"{len(members):,}" if members else "–", bars))
    return found


def words(change: Change) -> str:
    """A change as the start of a sentence; a name keeps its case."""
    said = timeline.sentence(change.kind, change.subject, change.data)
    if change.kind in _OF_PARTS:
        said = text.about_part(said)
    elif not said.startswith(f"{change.subject} "):
        said = text.sentence(said)
    return text.inert(said, 400)[0]


def _days(changes: Sequence[Change], lasted: Mapping[int, Span], now: datetime) -> list[dict[str, Any]]:
    """The changes by day."""
    found: list[dict[str, Any]] = []
    for change in changes:
        name = "Today" if change.at.date() == now.date() else f"{change.at:%A, %-d %B}"
        if not found or found[-1]["name"] != name:
            found.append({"name": name, "entries": []})
        found[-1]["entries"].append(_entry(change, lasted, now))
    return found


def _entry(change: Change, lasted: Mapping[int, Span], now: datetime) -> dict[str, Any]:
    of = lasted.get(change.change_id)
    trouble, lasts, span = change.kind in TROUBLE, of is not None and of.until is None, ""
    if of is not None and (lasts or of.until != change.at):
        span = f"{'still, ' if lasts else ''}for {times.span(of.seconds(now))}"
    return {
        "at": change.at,
        "time": times.seconds_time(change.at),
        "sign": sign_of(change.kind),
        "words": words(change),
        "kind": change.kind,
        "account": change.account_id or "",
        "lasted": span,
        "lasts": lasts and trouble,
        "links": _links(change),
    }


def _links(change: Change) -> list[tuple[str, str]]:
    """What it names, with the address of its page; an empty one where it has none."""
    data, found = change.data, []
    if "engine" in data:
        found.append((str(data["engine"]), f"/console/engines/{data['engine']}"))
    if "endpoint" in data:
        hook = f"/console/webhooks/{data['endpoint']}"
        found.append((change.subject, hook))
        if "delivery" in data:
            found.append((f"delivery {data['delivery']}", f"{hook}/deliveries/{data['delivery']}"))
    if "batch" in data:
        found.append((f"batch {text.short(data['batch'])}", f"/console/batches/{data['batch']}"))
    if "trace" in data:
        parts = str(data["trace"]).split("-")
        found.append((f"trace {parts[1] if len(parts) > 1 else parts[0]}", ""))
    return [(text.inert(name, 120)[0], href) for name, href in found]


def _pages(seen: Seen, params: Mapping[str, str], keep: Mapping[str, str], subject: str) -> dict[str, Any]:
    older = ""
    if seen.more and seen.changes:
        last = seen.changes[-1]
        older = batch_filter.address(PATH, **keep, q=subject, before=places.written(last.at, last.change_id))
    newer = batch_filter.address(PATH, **keep, q=subject) if params.get("before") else ""
    words = f"{text.plural(len(seen.changes), 'change')}, newest first"
    return {
        "names": (),
        "words": words,
        "older": older,
        "newer": newer,
        "cli": f"slackwater incidents --since {params.get('range', USUAL_RANGE)}",
    }
