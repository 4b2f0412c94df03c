"""Signed checkpoints: what the newest row of a chain was at a time. They lie in the object store and in the database.

Whoever changes the database alone cannot make the checkpoints of the store fit.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app import crypto
from app.audit import sql
from app.audit.record import canonical, moment
from app.audit.sealing import Head
from app.db.pool import Connection
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signed statement about a chain. `cut`: its rows up to `seq` may be deleted."""

    account: str
    seq: int
    at: datetime
    cut: bool
    body: str
    signature: bytes

    def document(self) -> dict[str, str]:
        """The checkpoint as it is stored and exported."""
        return {"body": self.body, "signature": self.signature.hex()}


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and its latest checkpoint. `first`: the number of its first row. `unsigned_since`: when the first row after the
    checkpoint was written; None: there is none. `broken`: what does not fit, in words.
    """

    account: str
    first: int
    head: Head
    signed_at: datetime | None
    signed_seq: int
    unsigned_since: datetime | None
    broken: str | None


class Signer:
    """Signs with the key that is derived from the secret key of the installation."""

    def __init__(self, settings: Settings) -> None:
        self._key = crypto.signing_key(crypto.secret_key(settings), "audit checkpoints")
        self.public = self._key.public_key().public_bytes_raw()

    def checkpoint(self, account: str, head: Head, at: datetime, *, cut_days: int | None = None) -> Checkpoint:
        """The signed checkpoint of a chain. `cut_days`: its rows, older than so many days, may be deleted; None: they stay."""
        cut = cut_days is not None
        values = {"account": account, "at": moment(at), "cut": cut, "hash": head.hash.hex(), "seq": head.seq}
        if cut:
            values["retention_days"] = cut_days
        body = canonical(values | {"key": self.public.hex(), "version": _VERSION})
        return Checkpoint(account, head.seq, at, cut, body, self._key.sign(body.encode()))


def known_keys(settings: Settings) -> list[bytes]:
    """The public keys whose checkpoints are believed: that of today's secret key, and those that the settings name."""
    former = [bytes.fromhex(key.strip()) for key in settings.audit_keys.split(",") if key.strip()]
    return list(dict.fromkeys([Signer(settings).public, *former]))


def fits(public: bytes, message: bytes, signature: bytes) -> bool:
    """`verifier.ed25519_verify` by the library, which is a thousand times faster."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


async def chains(conn: Connection, seen: Mapping[str, Head]) -> list[Chain]:
    """Every chain, compared with its latest checkpoint and with the heads that this process has `seen`."""
    rows = await (await conn.execute(sql.CHAINS)).fetchall()
    wanted = {"account": list(seen), "seq": [head.seq for head in seen.values()]}
    found = await (await conn.execute(sql.HASHES, wanted)).fetchall()
    present = {account: Head(seq, digest) for account, seq, digest in found}
    known = {row[0] for row in rows}
    gone = [Chain(account, 0, Head(0, b""), None, 0, None, LOST) for account in seen if account not in known]
    return gone + [_chain(row, seen.get(row[0]), present.get(row[0])) for row in rows]


LOST = "rows that were sealed are missing at its end, or were changed"


def _chain(row: Sequence[Any], seen: Head | None, present: Head | None) -> Chain:
    account, first, seq, digest, at, signed_seq, body, stored, since = row
    broken = None
    if seen is not None and seen != present:
        broken = LOST
    if body is not None and (stored is None or stored.hex() != _hash_of(body)):
        broken = f"row {signed_seq}, which was signed at {moment(at)}, is missing or was changed"
    return Chain(account, first, Head(seq, digest), at, signed_seq or 0, since, broken)


def _hash_of(body: str) -> str:
    try:
        return str(json.loads(body)["hash"])
    except (ValueError, KeyError, TypeError):
        return ""


def due(chain: Chain, now: datetime, interval: timedelta) -> bool:
    """Whether a chain has rows that no checkpoint covers, and its latest checkpoint is old enough."""
    if chain.head.seq == 0 or (chain.head.seq == chain.signed_seq and chain.broken is None):
        return False
    return chain.signed_at is None or now - chain.signed_at >= interval


def overdue(chain: Chain, now: datetime, interval: timedelta) -> float:
    """For how many seconds a checkpoint of the chain has been due."""
    if chain.unsigned_since is None:
        return 0.0
    since = chain.unsigned_since if chain.signed_at is None else max(chain.unsigned_since, chain.signed_at + interval)
    return max(0.0, (now - since).total_seconds())


async def store(bucket: Store, checkpoint: Checkpoint) -> None:
    """Put a checkpoint into the object store, under a name of its own. Call it before `add`. Raises StorageError."""
    key = object_names.checkpoint(checkpoint.account, checkpoint.seq, checkpoint.at)
    await bucket.put(key, canonical(checkpoint.document()).encode())


async def add(conn: Connection, checkpoint: Checkpoint) -> None:
    """Add a checkpoint to the database."""
    names = ("account", "seq", "at", "cut", "body", "signature")
    await conn.execute(sql.ADD_CHECKPOINT, {name: getattr(checkpoint, name) for name in names})


async def cuts(conn: Connection, days: int) -> dict[str, Head]:
    """By chain: the last row that was signed so many days ago. The newest row of a chain always stays."""
    rows = await (await conn.execute(sql.CUTS, {"days": days})).fetchall()
    return {account: Head(seq, digest) for account, seq, digest in rows}


async def cut(conn: Connection, checkpoint: Checkpoint) -> int:
    """Delete the rows that a signed checkpoint allows to delete, in the caller's transaction. Returns how many."""
    values = {"account": checkpoint.account, "seq": checkpoint.seq}
    counts = [(await conn.execute(statement, values)).rowcount for statement in sql.CUT]
    return counts[0]
