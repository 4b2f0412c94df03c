"""Fair shares: what each account is due of a pool, what it got, and who is next. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.batches.fair_shares import MOST_ACCOUNTS, Share, ShareRow, shares
from app.console.views import plots, signs, text, times
from app.console.views.batches import few
from app.console.views.plots import Bar, Meter
from app.console.views.signs import Sign

PATH = "/console/fairness"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `served`: tokens by model and account since `since`."""

    rows: Sequence[ShareRow]
    served: Mapping[tuple[str, int], int]
    since: datetime


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need. A role of one account sees the others as one row without a name."""
    found = shares(seen.rows, seen.served)
    sign, title = headline(found, viewer)
    return {
        "sign": sign,
        "title": title,
        "rest": rest(found, viewer),
        "since": times.clock_time(seen.since, now),
        "pools": [
            {"model": model, "rows": _rows(members, viewer), "count": text.plural(len(members), "account"),
             "full": len(members) >= MOST_ACCOUNTS}
            for model, members in found.items()
            if viewer.tenant_id is None or any(each.row.tenant_id == viewer.tenant_id for each in members)
        ],
    }  # fmt: skip


def _own(found: Mapping[str, Sequence[Share]], viewer: Viewer) -> list[Share]:
    return [
        each
        for members in found.values()
        for each in members
        if viewer.tenant_id is None or each.row.tenant_id == viewer.tenant_id
    ]


def headline(found: Mapping[str, Sequence[Share]], viewer: Viewer) -> tuple[Sign, str]:
    """Whether accounts get what they are due. The fair order sees to it, but for a limit of tokens in flight."""
    own, mine = _own(found, viewer), viewer.tenant_id is not None
    if not own:
        return signs.QUIET, "You have no work that can run" if mine else "No account has work that can run"
    held = next((each for each in own if each.short and each.row.at_limit), None)
    if held is not None:
        who = (
            "Your limit of tokens in flight holds you"
            if mine
            else f"{held.row.account} is held by its limit of tokens in flight"
        )
        return signs.LOOK, f"{who} below {'your' if mine else 'its'} share"
    return signs.DONE, "You get what your weight gives you" if mine else "Every account gets what its weight gives it"


def rest(found: Mapping[str, Sequence[Share]], viewer: Viewer) -> str:
    """Who got much less than its due, and why; who is next. At most three sentences."""
    said, mine = [], viewer.tenant_id is not None
    for each in [each for each in _own(found, viewer) if each.short][:2]:
        who = "You" if mine else each.row.account
        why = "it has as much in flight as it may" if each.row.at_limit else "it had no work for part of the time"
        why = why.replace("it ", "you ").replace("has", "have") if mine else why
        said.append(f"{who} got {_percent(each.got)} of {each.row.model} where {_percent(each.due)} is due: {why}.")
    for model, members in found.items():
        first = next((each for each in members if each.next), None)
        if first is not None and (not mine or first.row.tenant_id == viewer.tenant_id):
            said.append(f"{'You are' if mine else f'{first.row.account} is'} next for {model}.")
    return " ".join(said[:3])


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{text.percent(share)}{text.NBSP}%"


def _rows(members: Sequence[Share], viewer: Viewer) -> list[dict[str, Any]]:
    own = [each for each in members if viewer.tenant_id is None or each.row.tenant_id == viewer.tenant_id]
    others = [each for each in members if each not in own]
    rows = [_row(each, own=viewer.tenant_id is not None) for each in own]
    return rows + ([_together(others)] if others else [])


def _row(each: Share, *, own: bool) -> dict[str, Any]:
    row = each.row
    return {
        "account": row.account,
        "own": own,
        "next": each.next,
        "weight": f"{row.weight:g}",
        "due": _percent(each.due),
        "got": _percent(each.got),
        "bad": each.short and each.row.at_limit,
        "meter": share_meter(row.account, each.due, each.got),
        "tokens": text.compact(each.tokens) if each.tokens else "–",
        "ahead": f"{text.compact(each.ahead)} ahead" if each.ahead >= 1 else ("next" if each.next else "level"),
        "ready": f"{row.ready:,}" if row.ready else "–",
        "flight": _flight(row),
        "inflight": text.compact(row.inflight),
        "limit": text.compact(row.max_inflight),
        "at_limit": row.at_limit,
    }


def _together(others: Sequence[Share]) -> dict[str, Any]:
    """The other accounts as one, for somebody who may not see them."""
    got = [each.got for each in others if each.got is not None]
    due, all_got = sum(each.due for each in others), sum(got) if got else None
    name = f"{few(len(others))} other {'account' if len(others) == 1 else 'accounts'}"
    return {
        "account": name, "own": False, "next": False, "weight": f"{sum(each.row.weight for each in others):g}",
        "due": _percent(due), "got": _percent(all_got), "bad": False, "meter": share_meter(name, due, all_got),
        "tokens": "", "ahead": "", "ready": "", "flight": None, "inflight": "", "limit": "", "at_limit": False,
    }  # fmt: skip


def share_meter(name: str, due: float, got: float | None) -> Meter:
    """What an account got as a bar, and what it is due as a mark on it."""
    bars = [Bar("got", 0, round(100 * (got or 0.0), 2))]
    bars.append(Bar("tick", round(min(99.4, 100 * due), 2), 0.6))
    return Meter(f"{name}: got {_percent(got)}, due {_percent(due)}", bars)


def _flight(row: ShareRow) -> Meter:
    kind = "warn" if row.at_limit else "run"
    words = f"{row.account}: {text.compact(row.inflight)} of {text.compact(row.max_inflight)} tokens in flight"
    return plots.meter(words, row.max_inflight, (kind, min(row.inflight, row.max_inflight)))
