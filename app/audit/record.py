"""Records of the audit log, and the canonical form in which they are stored, sealed and exported. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app.audit.actor import Actor, current
from app.audit.acts import Act

DONE = "done"
MOST_TEXT = 500  # characters of an outcome or a reason


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that somebody did.

    `account`: whose object it was; None: the installation's. `before`, `after`: the terms that changed, never content of a
    request or an answer. `outcome`: `done`, or why it was refused. `actor`: who; None: who acts now. `correlation`: the ids of
    further requests that this record stands for.
    """

    act: Act
    target: str
    account: str | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    outcome: str = DONE
    reason: str | None = None
    actor: Actor | None = None
    correlation: Sequence[str] = ()


def canonical(values: Mapping[str, Any]) -> str:
    """One text for equal values: JSON with sorted keys and without spaces, as in RFC 8785 for the values that occur here."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return text.encode("utf-8", "replace").decode()


def body(record: Record, at: datetime) -> str:
    """The canonical form of a record that is written at this time."""
    actor = record.actor or current()
    reason = record.reason or actor.reason
    own = (actor.correlation,) if actor.correlation else ()
    return canonical(
        {
            "account": record.account,
            "act": record.act,
            "after": record.after,
            "at": moment(at),
            "before": record.before,
            "correlation": list(dict.fromkeys((*own, *record.correlation))),
            "outcome": record.outcome[:MOST_TEXT],
            "reason": reason and reason[:MOST_TEXT],
            "role": actor.role,
            "session": actor.session_id,
            "target": record.target,
            "who": actor.who,
        }
    )


def moment(at: datetime) -> str:
    """A time in UTC with microseconds, as bodies and checkpoints have it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of both, the values that differ."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {name: before.get(name) for name in names}, {name: after.get(name) for name in names}
