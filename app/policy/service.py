"""The versions of the policy: apply a text, go back to an earlier one, list them. The newest version is in force."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.engines.catalogue import Catalogue
from app.errors import NotFound
from app.policy import sql
from app.policy.language import parse


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version. `digest`: SHA-256 of its text. `by`: who applied it. `restores`: the version whose text it put in force again;
    None: its text came from a file.
    """

    policy_id: int
    digest: str
    text: str
    by: str
    at: datetime
    restores: int | None = None


async def apply(
    conn: Connection, text: str, models: Catalogue, by: str, *, restores: int | None = None
) -> tuple[PolicyVersion, bool]:
    """Put a text in force. Returns its version, and whether it is new: the text in force already is not stored again.
    `restores`: the earlier version whose text it is.

    Call inside a transaction. Raises PolicyError, and then nothing changes.
    """
    parse(text, models)
    await conn.execute(sql.ONE_AT_A_TIME)
    found, digest = await newest(conn), hashlib.sha256(text.encode()).hexdigest()
    if found is not None and found.digest == digest:
        return found, False
    row = await (await conn.execute(sql.ADD, {"hash": digest, "text": text, "by": by, "restores": restores})).fetchone()
    assert row is not None
    made = PolicyVersion(*row)
    act = Act.POLICY_APPLY if restores is None else Act.POLICY_ROLLBACK
    entry = Record(act, f"policy {made.policy_id}", before=_named(found), after=_named(made))
    await log.record(conn, entry)
    return made, True


def _named(version: PolicyVersion | None) -> dict[str, object] | None:
    """A version as the audit log has it; its text stays in the table of the versions."""
    if version is None:
        return None
    known = {"version": version.policy_id, "hash": version.digest, "restores": version.restores}
    return {name: value for name, value in known.items() if value is not None}


async def roll_back(conn: Connection, policy_id: int | None, models: Catalogue, by: str) -> tuple[PolicyVersion, bool]:
    """Put the text of an earlier version in force again, as a new version. See `apply`. Raises NotFound.

    `policy_id` None: the version before the one whose text is in force, so that each further call goes back one more.
    """
    await conn.execute(sql.ONE_AT_A_TIME)
    earlier = await _before(conn) if policy_id is None else await find(conn, policy_id)
    return await apply(conn, earlier.text, models, by, restores=earlier.policy_id)


async def _before(conn: Connection) -> PolicyVersion:
    row = await (await conn.execute(sql.BEFORE)).fetchone()
    if row is None:
        raise NotFound("There is no version before this one. `slackwater policy show --history` lists them")
    return PolicyVersion(*row)


async def find(conn: Connection, policy_id: int) -> PolicyVersion:
    """One version. Raises NotFound."""
    row = await (await conn.execute(sql.FIND, {"policy_id": policy_id})).fetchone()
    if row is None:
        raise NotFound(f"There is no version {policy_id} of the policy")
    return PolicyVersion(*row)


async def newest(conn: Connection) -> PolicyVersion | None:
    """The version in force. None: no policy was ever applied."""
    found = await history(conn, 1)
    return found[0] if found else None


async def history(conn: Connection, limit: int, before: int | None = None) -> list[PolicyVersion]:
    """The newest versions, or the newest of those before `before`; newest first."""
    rows = await (await conn.execute(sql.NEWEST, {"before": before, "limit": limit})).fetchall()
    return [PolicyVersion(*row) for row in rows]


async def newest_id(conn: Connection) -> int:
    """The number of the version in force; 0: there is none."""
    row = await (await conn.execute(sql.NEWEST_ID)).fetchone()
    return row[0] or 0 if row else 0
