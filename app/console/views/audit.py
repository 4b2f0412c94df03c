"""The audit log to rows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.audit.log import Entry
from app.audit.record import DONE
from app.console.views import signs, text, times

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Pages:
    """What the macro `older` draws."""

    words: str
    cli: str = ""
    names: tuple[str, str] | None = None
    newer: str = ""
    older: str = ""


def view(seen: Sequence[Entry], viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template of the page needs."""
    rows = seen[:SHOWN]
    refused = sum(each.outcome != DONE for each in rows)
    revealed = sum(each.act.endswith("reveal") for each in rows)
    first = "before" not in params
    if not rows:
        title, rest = (
            "Nothing was done yet",
            "Each action in the console, and each look at a prompt or an answer, leaves a row here.",
        )
    else:
        latest = rows[0]
        title = f"{latest.who} was the last to act, {times.span((now - latest.at).total_seconds())} ago"
        rest = (
            f"On this page: {text.plural(revealed, 'look')} at prompts or answers, {text.plural(refused, 'refusal')}."
        )
    more = len(seen) > SHOWN
    return {
        "title": title if first else "Earlier entries",
        "rest": rest,
        "rows": [_row(each, now) for each in rows],
        "one_account": viewer.tenant_id is not None,
        "pages": Pages(
            "Rows are only ever added, sealed within a second, and signed every hour.",
            cli="slackwater audit verify",
            newer="" if first else "/console/audit",
            older=f"/console/audit?before={rows[-1].audit_id}" if more else "",
        ),
    }


def _row(each: Entry, now: datetime) -> dict[str, Any]:
    done = each.outcome == DONE
    return {
        "id": each.audit_id,
        "at": each.at,
        "time": times.clock_time(each.at, now),
        "who": each.who,
        "role": each.role,
        "account": each.account or "–",
        "action": each.act,
        "target": each.target,
        "href": f"/console/batches/{each.target}" if each.act.startswith("batch.") else "",
        "sign": signs.DONE if done else signs.LOOK,
        "outcome": "" if done else each.outcome,
        "reason": each.reason or "",
        "seal": _seal(each),
    }


def _seal(each: Entry) -> str:
    """Whether the row can still be changed unseen."""
    if each.seq is None:
        return "not sealed yet"
    return f"{each.seq}, signed" if each.signed else f"{each.seq}, sealed"
