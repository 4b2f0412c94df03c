"""Exports the audit log into a folder, with a program that checks it and needs nothing of ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.audit import check, verifier
from app.db.pool import Connection
from app.storage.store import Store

FILES = ("rows.ndjson", "checkpoints.ndjson", "keys.json", "verify.py")


@dataclass(frozen=True, slots=True)
class Exported:
    """How much was exported. Rows that are not sealed yet come with the next export."""

    rows: int
    checkpoints: int


async def export(
    conn: Connection, bucket: Store, keys: Sequence[bytes], folder: Path, account: str | None = None
) -> Exported:
    """Write the sealed rows of all chains, or of one (empty: the installation's), and what is needed to check them.

    Raises FileExistsError if the folder has such files, OSError, StorageError.
    """
    _prepare(folder)
    found = await check.stored(bucket, account)
    rows = 0
    async with check.snapshot(conn):
        found += await check.of_database(conn, account)
        with (folder / "rows.ndjson").open("w", encoding="utf-8") as file:
            async for chain, seq, digest, audit_id, body, *_ in check.sealed(conn, account):
                values = {"account": chain, "seq": seq, "audit_id": audit_id, "hash": digest.hex(), "body": body}
                file.write(json.dumps(values, ensure_ascii=False) + "\n")
                rows += 1
    return Exported(rows, _write_rest(folder, found, keys))


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if there := [name for name in FILES if (folder / name).exists()]:
        raise FileExistsError(f"{folder} has {', '.join(there)} already")


def _write_rest(folder: Path, found: Sequence[check.Signed], keys: Sequence[bytes]) -> int:
    """Write everything but the rows. Returns the number of checkpoints, which may lie in the store and in the database."""
    signed = {
        (each.body, each.signature.hex()): each.stored for each in reversed(found)
    }  # those of the store are the first
    lines = [
        json.dumps({"body": body, "signature": signature, "stored": stored and stored.isoformat()}, ensure_ascii=False)
        for (body, signature), stored in signed.items()
    ]
    (folder / "checkpoints.ndjson").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "keys.json").write_text(json.dumps([key.hex() for key in keys]) + "\n")
    (folder / "verify.py").write_text(Path(verifier.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    return len(lines)
