"""The timeline of the installation: what died, closed, opened, stopped, and who leads, with the ids to follow it up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app import clock
from app.batches import why_text
from app.changes import kinds
from app.changes import service as changes
from app.changes.kinds import PRIVATE, TROUBLE, ChangeKind
from app.changes.service import Change, ChangePosition
from app.db.pool import Connection
from app.quantities import moment

MOST = 500  # in one page
IDS = ("engine", "worker", "batch", "batches", "delivery", "trace", "budget", "endpoint", "event")


@dataclass(frozen=True, slots=True)
class Incident:
    """A change in words. `trouble`: something stopped. `ids`: the correlation ids that are known, by what they name; `facts`:
    what else is known.
    """

    position: ChangePosition
    kind: str
    subject: str
    account_id: str | None
    trouble: bool
    message: str
    ids: Mapping[str, Any]
    facts: Mapping[str, Any]


async def timeline(
    conn: Connection,
    *,
    since: datetime | None = None,
    before: tuple[datetime, int] | None = None,
    only_trouble: bool = False,
    subject: str | None = None,
    tenant_id: int | None = None,
    limit: int = MOST,
) -> list[Incident]:
    """The newest incidents, newest first. `tenant_id`: as this account may see them, None: as the operator."""
    found = await changes.page(
        conn,
        since=since,
        before=before,
        kinds=sorted(TROUBLE) if only_trouble else (),
        subject=subject,
        tenant_id=tenant_id,
        limit=limit,
    )
    return [incident(each, hidden=() if tenant_id is None else PRIVATE) for each in found]


def incident(change: Change, *, hidden: Sequence[str] = ()) -> Incident:
    """A change in words, without the facts of the `hidden` names. Pure."""
    shown = {name: value for name, value in change.data.items() if name not in hidden}
    subject = change.subject
    if "host" in hidden and subject == change.data.get("host"):
        subject = "a machine"
    return Incident(
        ChangePosition(change.at, change.change_id),
        change.kind,
        subject,
        change.account_id,
        change.kind in TROUBLE,
        sentence(change.kind, subject, shown),
        {name: shown[name] for name in IDS if name in shown},
        {name: value for name, value in shown.items() if name not in IDS},
    )


def sentence(kind: str, subject: str, data: Mapping[str, Any]) -> str:
    """A change in words, with those of a gate's code, and times as people say them."""
    said = dict(data)
    if kind == ChangeKind.ENGINE_DOWN and said.get("detail"):
        said["reason"] = said["detail"]
    elif (code := said.get("reason")) in why_text.GATE_CODES:
        said["reason"] = f"it {why_text.gate('', str(code), None, None, None, None).strip()}"
    for name in ("until", "newest_batch"):
        if said.get(name):
            said[name] = moment(datetime.fromisoformat(said[name]))
    return kinds.sentence(kind, subject, said)


def document(each: Incident) -> dict[str, Any]:
    """An incident as the API and `--json` write it; times are UTC."""
    return {
        "at": clock.iso(each.position.at),
        "kind": each.kind,
        "subject": each.subject,
        "account": each.account_id,
        "trouble": each.trouble,
        "message": each.message,
        "ids": dict(each.ids),
        "facts": dict(each.facts),
    }
