"""Checks an audit log that was exported with `slackwater audit export`. It needs Python 3.11 and nothing else.

    python verify.py [FOLDER] [--key HEX]... [--retention DAYS]

Without --key, the keys that lie beside the rows are believed: then only what was changed without the signing key is found.
Give the public key that the operator published elsewhere, and how long rows have to be kept at least. The exit code is 1 if
anything does not fit.

The files: `rows.ndjson`, one sealed row a line, and `checkpoints.ndjson`. The hash of a row is SHA-256 of the hash before it
(32 zero bytes at the start), its number in its chain (8 bytes, big-endian), and its body in UTF-8. A checkpoint is signed with
Ed25519 (RFC 8032). Every account has a chain, and so has the installation, whose name is empty.

Old rows may be cut off a chain. A cut is a checkpoint that states a retention. It counts only if another checkpoint, of the same
row or a later one, had lain in the object store for so long when the cut was put there, by the store's times (`stored`).
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

START = bytes(32)
RETENTION_DAYS = 365
_P = 2**255 - 19
_Q = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_Point = tuple[int, int, int, int]  # extended coordinates: x = X/Z, y = Y/Z, T = XY/Z


def row_hash(before: bytes, seq: int, body: str) -> bytes:
    """The hash of a row that follows the row with the hash `before`."""
    return hashlib.sha256(before + seq.to_bytes(8, "big") + body.encode()).digest()


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of the message is by this key, as in RFC 8032, section 5.1.7, without the cofactor."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, commitment = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or scalar >= _Q:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _Q
    base = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))
    assert base is not None
    left, right = _times(scalar, base), _plus(commitment, _times(challenge, key))
    return all((left[i] * right[2] - right[i] * left[2]) % _P == 0 for i in (0, 1))


def _point(encoded: bytes) -> _Point | None:
    """The point of its 32 bytes. None: they are those of no point, or not in their only valid form."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def _plus(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c, d = 2 * one[3] * other[3] * _D % _P, 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(scalar: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = _plus(total, point)
        point, scalar = _plus(point, point), scalar >> 1
    return total


class Checkpoint(NamedTuple):
    """What a checkpoint attests: the hash of a row. `cut_days`: the rows up to it may be missing, being older than so many days;
    None: it is no cut.
    """

    account: str
    seq: int
    hash: bytes
    cut_days: int | None
    at: str
    body: str


class Verifier:
    """Give it all checkpoints, then all rows, chain after chain in the order of their numbers, then call `finish`.

    `retention_days`: how long rows have to be kept at least; 0: for ever. `problems`: what does not fit, in words.
    """

    def __init__(
        self,
        keys: Iterable[bytes],
        verify: Callable[[bytes, bytes, bytes], bool] = ed25519_verify,
        retention_days: int = RETENTION_DAYS,
    ) -> None:
        self.problems: list[str] = []
        self.rows = 0
        self.checkpoints = 0
        self._keys, self._verify = frozenset(keys), verify
        self._signed: dict[str, dict[int, list[Checkpoint]]] = {}
        self._retention_days = retention_days
        self._bodies: set[str] = set()
        self._stored: dict[str, datetime] = {}
        self._account: str | None = None
        self._seq, self._hash = 0, START

    def checkpoint(
        self, body: str, signature: bytes, where: str = "checkpoint", stored: datetime | None = None
    ) -> None:
        """Add a checkpoint. The same one may come from several places, but its signature has to fit in each.

        `stored`: since when it lies in the object store, by the store's clock; None: it is not from there.
        """
        try:
            values = json.loads(body)
            key, found = bytes.fromhex(values["key"]), _checkpoint(values, body)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.problems.append(f"{where}: this is no checkpoint")
            return
        name = f"{where}: checkpoint of {_named(found.account)} at row {found.seq}, {found.at}"
        if key not in self._keys:
            self.problems.append(f"{name}: it is signed with a key that is not known, {values['key'][:64]}")
        elif not self._verify(key, body.encode(), signature):
            self.problems.append(f"{name}: its signature does not fit")
        else:
            self._add(found, stored)

    def _add(self, found: Checkpoint, stored: datetime | None) -> None:
        if stored is not None:
            self._stored[found.body] = min(stored, self._stored.get(found.body, stored))
        if found.body not in self._bodies:
            self._bodies.add(found.body)
            self.checkpoints += 1
            self._signed.setdefault(found.account, {}).setdefault(found.seq, []).append(found)

    def row(self, account: str, seq: int, digest: bytes, body: str | None) -> None:
        """Add a sealed row. `body` None: the row is gone."""
        if account != self._account:
            self._end()
            self._begin(account, seq)
        elif seq != self._seq + 1:
            self.problems.append(f"{_named(account)}: rows {self._seq + 1} to {seq - 1} are missing")
            self._hash = b""
        self.rows += 1
        if body is None:
            self.problems.append(f"{_named(account)}: row {seq} is sealed, but gone")
        elif self._hash and row_hash(self._hash, seq, body) != digest:
            self.problems.append(f"{_named(account)}: row {seq} or its seal was changed")
        elif _account_of(body) != account:
            self.problems.append(f"{_named(account)}: row {seq} belongs to another chain")
        for each in self._signed.get(account, {}).pop(seq, ()):
            if each.hash != digest:
                self.problems.append(f"{_named(account)}: row {seq} is not the one that was signed at {each.at}")
        self._seq, self._hash = seq, digest

    def finish(self) -> list[str]:
        """All problems, those of chains that end too early included."""
        self._end()
        for account in list(self._signed):
            self._account, self._seq = account, 0
            self._end()
        return self.problems

    def _begin(self, account: str, seq: int) -> None:
        self._account, self._hash = account, START
        if seq == 1:
            return
        signed = self._signed.get(account, {})
        reasons = {
            self._against(each, signed): each.hash for each in signed.get(seq - 1, ()) if each.cut_days is not None
        }
        self._hash = reasons.get("") or next(iter(reasons.values()), b"")
        if "" not in reasons:
            reason = next(iter(reasons), "no checkpoint allows it")
            self.problems.append(f"{_named(account)}: rows 1 to {seq - 1} are missing, and {reason}")
        for earlier in [number for number in signed if number < seq]:
            del signed[earlier]

    def _against(self, cut: Checkpoint, signed: Mapping[int, Sequence[Checkpoint]]) -> str:
        """Why a cut does not allow rows to be missing, in words; empty: it does."""
        days, at = cut.cut_days or 0, self._stored.get(cut.body)
        if not self._retention_days or days < self._retention_days:
            return f"the checkpoint that cut them off states a retention of {days} days"
        if at is None:
            return "the checkpoint that cut them off is not in the object store"
        old = at - timedelta(days=days)
        proofs = [each for seq, found in signed.items() if seq >= cut.seq for each in found]
        if any(self._stored.get(each.body, at) <= old for each in proofs):
            return ""
        return f"no checkpoint in the object store shows that they were there {days} days before they were cut off"

    def _end(self) -> None:
        """The checkpoints that are left of a chain attest rows that it does not have."""
        if self._account is None:
            return
        left = self._signed.pop(self._account, {})
        if left:
            seq = max(left)
            text = f"rows {self._seq + 1} to {seq} are missing: row {seq} was signed at {left[seq][0].at}"
            self.problems.append(f"{_named(self._account)}: {text}")


def _checkpoint(values: dict[str, Any], body: str) -> Checkpoint:
    account, seq, cut, at = values["account"], values["seq"], values["cut"], values["at"]
    days = values["retention_days"] if cut else 0
    kinds = ((account, str), (seq, int), (cut, bool), (at, str), (days, int))
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise TypeError
    return Checkpoint(account, seq, bytes.fromhex(values["hash"]), days if cut else None, at, body)


def _account_of(body: str) -> str | None:
    try:
        return str(json.loads(body)["account"] or "")
    except (ValueError, KeyError, TypeError):
        return None


def _named(account: str) -> str:
    return f"account {account}" if account else "the installation"


def verify_folder(folder: Path, keys: Iterable[bytes], retention_days: int = RETENTION_DAYS) -> Verifier:
    """Check an exported folder. `keys`: those to be believed; none: those in the folder. Raises OSError, ValueError."""
    believed = list(keys) or [bytes.fromhex(key) for key in json.loads((folder / "keys.json").read_text())]
    verifier = Verifier(believed, retention_days=retention_days)
    for line in (folder / "checkpoints.ndjson").read_text(encoding="utf-8").split("\n"):
        if not line:
            continue
        values = json.loads(line)
        stored = datetime.fromisoformat(values["stored"]) if values["stored"] else None
        verifier.checkpoint(values["body"], bytes.fromhex(values["signature"]), stored=stored)
    with (folder / "rows.ndjson").open(encoding="utf-8") as rows:
        for line in rows:
            values = json.loads(line)
            verifier.row(values["account"], values["seq"], bytes.fromhex(values["hash"]), values["body"])
    verifier.finish()
    return verifier


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    parser.add_argument("--key", action="append", default=[], type=bytes.fromhex, help="a public key to be believed")
    kept = "days that rows have to be kept at least (%(default)s); 0: for ever"
    parser.add_argument("--retention", default=RETENTION_DAYS, type=int, metavar="DAYS", help=kept)
    options = parser.parse_args()
    try:
        found = verify_folder(options.folder, options.key, options.retention)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        place = getattr(error, "filename", None) or options.folder
        sys.exit(f"{place} cannot be read as part of an export of the audit log: {reason}")
    for problem in found.problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{found.rows} rows and {found.checkpoints} checkpoints, {len(found.problems)} problems\n")
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
