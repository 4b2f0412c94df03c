"""The audit log to rows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.audit.log import Entry
from app.audit.record import DONE
from app.console.views import batch_filter, signs, text, times

PATH = "/console/audit"
SHOWN = 50
_ACCOUNT = "account:"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a filter asks for. None: any. `target`: what was acted on."""

    account: str | None = None
    target: str | None = None

    def chips(self) -> list[batch_filter.Chip]:
        """Each part of the filter with the address without it."""
        raws = {"account": self.account and _ACCOUNT + self.account, "target": self.target}
        return [
            batch_filter.Chip(name, raw.removeprefix(_ACCOUNT), raw, batch_filter.address(PATH, q=_joined(raws, name)))
            for name, raw in raws.items()
            if raw
        ]


def _joined(raws: Mapping[str, str | None], without: str) -> str:
    return " ".join(raw for name, raw in raws.items() if raw and name != without)


def wanted(given: str) -> Wanted:
    """The filter of a text like `account:acme policy 3`: an account, and what was acted on, which may have several words."""
    words = given.split()
    accounts = [word.removeprefix(_ACCOUNT) for word in words if word.startswith(_ACCOUNT)]
    target = " ".join(word for word in words if not word.startswith(_ACCOUNT))
    return Wanted((accounts[-1] or None) if accounts else None, target or None)


def view(seen: Sequence[Entry], viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template of the page needs."""
    rows = seen[:SHOWN]
    refused = sum(each.outcome != DONE for each in rows)
    revealed = sum(each.act.endswith("reveal") for each in rows)
    first, given = "before" not in params, params.get("q", "")
    if not rows and (given or not first):
        title, rest = "Audit", ""
    elif not rows:
        title, rest = (
            "Nothing was done yet",
            "Each action in the console, and each look at a prompt or an answer, leaves a row here.",
        )
    else:
        latest = rows[0]
        title = f"{_none_or(refused, 'refusal')} among the latest {text.plural(len(rows), 'entry', 'entries')}"
        looks = f"{_none_or(revealed, 'look')} at prompts or answers."
        rest = (
            f"{looks} The newest entry is {times.span((now - latest.at).total_seconds())} old, by {latest.who}.".strip()
        )
    more = len(seen) > SHOWN
    return {
        "title": title if first or not rows else "Earlier entries",
        "rest": rest,
        "rows": [_row(each, now) for each in rows],
        "one_account": viewer.tenant_id is not None,
        "chips": wanted(given).chips(),
        "is_filtered": bool(given or not first),
        "clear": PATH,
        "pages": {
            "names": (),
            "words": "Rows are only ever added, sealed within a second, and signed every hour.",
            "cli": "slackwater audit verify",
            "newer": "" if first else batch_filter.address(PATH, q=given),
            "older": batch_filter.address(PATH, q=given, before=str(rows[-1].audit_id)) if more else "",
        },
    }


def _none_or(number: int, thing: str) -> str:
    return text.plural(number, thing) if number else f"No {thing}"


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
