"""Sessions and families: how prompts grow, and what the prefix cache serves. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.views import text
from app.console.views.figures import Figure, figure
from app.console.views.plots import Bar, Meter
from app.metering import session_report, slope
from app.metering.families import NONE
from app.metering.lines import MIXED
from app.metering.reports import UsageRow
from app.metering.session_report import Session, SessionRow
from app.usage_counts import UsageCounts

DAYS = 7
_MOST_FAMILIES, _MOST_SESSIONS = 20, 10
_WEAK_SHARE = 0.3  # of prompt tokens from the cache; a larger family below it is worth a look
_FAMILY_TOKENS = 100_000  # prompt tokens of a family that is worth a look
_NAMES = {NONE: "no family", MIXED: "several in one chunk"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. Groups are account, workflow and model or family; `windows`: context windows by model."""

    sessions: Sequence[Session]
    families: Sequence[UsageRow]
    windows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Family:
    """Prompts that begin alike: their prompt tokens, and how many of them came from the cache."""

    account: str
    workflow: str
    name: str
    counts: UsageCounts = field(default_factory=UsageCounts)

    @property
    def share(self) -> float:
        """Of its prompt tokens, those from the cache."""
        return self.counts.cached / self.counts.prompt if self.counts.prompt else 0.0


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template of the page needs."""
    families = _families(seen.families)
    groups = session_report.grouped(seen.sessions)
    growing = [each for each in seen.sessions if each.slope is not None and each.slope > 0]
    title, rest = headline(seen, families)
    return {
        "title": title,
        "rest": rest,
        "figures": figures(seen, families),
        "families": [_family(each) for each in families[:_MOST_FAMILIES]],
        "family_words": _top(len(families), _MOST_FAMILIES, "most prompt tokens"),
        "group_words": _top(len(groups), _MOST_SESSIONS, "fastest growth"),
        "groups": [_group(each, seen.windows) for each in groups[:_MOST_SESSIONS]],
        "steepest": [_session(each, seen.windows) for each in growing[:_MOST_SESSIONS]],
        "steepest_words": _top(len(growing), _MOST_SESSIONS, "fastest growth"),
        "one_account": viewer.tenant_id is not None,
        "empty": not seen.sessions and not families,
    }


def _top(number: int, most: int, order: str) -> str:
    return f"the {most} with {order} of {number:,}" if number > most else f"{number}, {order} first"


def headline(seen: Seen, families: Sequence[Family]) -> tuple[str, str]:
    """Which sessions fill their window soon, and which prompts the cache serves badly."""
    if not seen.sessions and not families:
        return (
            "No session and no family in seven days",
            "Requests with a session id, and prompts that begin alike, appear here.",
        )
    full = [each for each in seen.sessions if slope.is_soon(turns_left(each, seen.windows))]
    title = (
        f"{text.sentence(text.plural(len(full), 'session'))} will fill {'its' if len(full) == 1 else 'their'} window soon"
        if full
        else "No session is about to fill its window"
    )
    large = [each for each in families if each.name not in _NAMES and each.counts.prompt >= _FAMILY_TOKENS]
    weak = [each for each in large if each.share < _WEAK_SHARE]
    if not large:
        return (
            title,
            f"No family of prompts has {text.compact(_FAMILY_TOKENS)} tokens, from which on a cache is worth a look.",
        )
    if not weak:
        return title, "The cache serves every large family of prompts."
    worst = weak[0]
    share = f"{text.percent(worst.share)}{text.NBSP}%"
    return title, (
        f"Only {share} of the prompts of family {_named(worst.name)} in workflow {worst.workflow} came from the cache. "
        "Text that changes should stand behind the text that they share."
    )


def turns_left(session: Session, windows: Mapping[str, int]) -> int | None:
    """Requests until the prompt exceeds the context window of its model. None: it does not grow, or is not known."""
    return slope.turns_left(session.prompt, session.slope, windows.get(session.group[-1]))


def figures(seen: Seen, families: Sequence[Family]) -> list[Figure]:
    """At most five numbers."""
    counts = UsageCounts()
    for row in seen.families:
        counts += row.counts
    slopes = [each.slope for each in seen.sessions if each.slope is not None]
    growing = sum(slope > 0 for slope in slopes)
    named = [each for each in families if each.name not in _NAMES]
    alike = sum(each.counts.prompt for each in named)
    return [
        figure("Sessions, 7 days", text.count(len(seen.sessions)), "", f"{text.count(growing)} of them grow"),
        figure(
            "Growth",
            text.count(sum(slopes) / len(slopes)) if slopes else "–",
            "tokens a turn" if slopes else "",
            "mean of the sessions",
        ),
        figure("Families", text.count(len(named)), "", "prompts that begin alike"),
        figure(
            "From the cache",
            f"{text.percent(counts.cached / counts.prompt)} %" if counts.prompt else "–",
            "",
            "of all prompt tokens",
        ),
        figure(
            "In families",
            f"{text.percent(alike / counts.prompt)} %" if counts.prompt else "–",
            "",
            "of all prompt tokens",
        ),
    ]


def _families(rows: Sequence[UsageRow]) -> list[Family]:
    found: dict[tuple[str, ...], Family] = {}
    for row in rows:
        account, workflow, name = row.group
        family = found.setdefault(row.group, Family(account, workflow, name))
        counts = family.counts
        counts += row.counts
    return sorted(found.values(), key=lambda each: (-each.counts.prompt, each.account, each.workflow, each.name))


def _family(each: Family) -> dict[str, Any]:
    share = f"{text.percent(each.share)}{text.NBSP}%" if each.counts.prompt else "–"
    weak = each.share < _WEAK_SHARE and each.counts.prompt >= _FAMILY_TOKENS
    return {
        "name": _named(each.name),
        "known": each.name not in _NAMES,
        "workflow": each.workflow,
        "account": each.account,
        "meter": Meter(f"{share} from the cache", [Bar("warn" if weak else "up", 0.0, round(100 * each.share, 2))]),
        "share": share,
        "prompt": text.compact(each.counts.prompt),
        "requests": text.compact(each.counts.requests),
        "each": text.count(each.counts.prompt / each.counts.requests if each.counts.requests else None),
    }


def _named(name: str) -> str:
    return _NAMES.get(name, name)


def _group(row: SessionRow, windows: Mapping[str, int]) -> dict[str, Any]:
    account, workflow, model = row.group
    return {
        "account": account,
        "workflow": workflow,
        "model": model,
        "sessions": text.count(row.sessions),
        "turns": text.count(row.turns),
        "prompt": text.count(row.prompt),
        "slope": _slope(row.slope),
        "steepest": _slope(row.steepest),
        "cached": "–" if row.cached_share is None else f"{text.percent(row.cached_share)}{text.NBSP}%",
        "window": text.compact(windows[model]) if model in windows else "–",
    }


def _session(each: Session, windows: Mapping[str, int]) -> dict[str, Any]:
    account, workflow, model = each.group
    left = turns_left(each, windows)
    share = each.prompt / windows[model] if windows.get(model) else 0.0
    soon = slope.is_soon(left)
    words = f"{text.count(each.prompt)} tokens, {text.percent(min(share, 1))}{text.NBSP}%"
    return {
        "name": text.short(each.session),
        "whole": each.session,
        "account": account,
        "workflow": workflow,
        "turns": text.count(each.turns),
        "meter": Meter(words, [Bar("warn" if soon else "up", 0.0, round(100 * min(share, 1), 2))]),
        "prompt": words,
        "slope": _slope(each.slope),
        "left": "–" if left is None else text.count(left),
        "soon": soon,
    }


def _slope(slope: float | None) -> str:
    return "–" if slope is None else f"{slope:+,.0f}".replace("-", "−")
