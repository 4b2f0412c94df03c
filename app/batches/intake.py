"""One submit on its way in: items are checked as they arrive and kept as ready-made COPY rows in a spool.

Memory is bounded: beyond `memory_bytes` the spool is a file, and per item only two numbers are kept.
Synchronous; the service runs it in threads.
"""

import errno
import hashlib
import os
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from app.batches import strict_json
from app.batches.items import ItemError, ItemRules, examine
from app.batches.ndjson import LineSplitter, LineTooLong
from app.errors import BadInput, StorageFull
from app.queue import rows
from app.storage import keys

_BLOCK = 256 * 1024


class Intake:
    """Collects the items of one batch. A context manager: leaving it deletes the spool."""

    def __init__(
        self,
        batch_id: int,
        model: str,
        rules: ItemRules,
        *,
        folder: Path,
        memory_bytes: int,
        line_bytes: int,
        max_items: int,
        object_bytes: int | None = None,
    ) -> None:
        self.batch_id = batch_id
        self.est_tokens = array("i")
        self.warm_keys = array("q")  # items with the same one belong together
        self._object_bytes = object_bytes
        self._large: list[tuple[str, bytes]] = []
        self._digest = hashlib.sha256(b"%d:" % len(model.encode()) + model.encode())
        self._rules = rules
        self._max_items = max_items
        self._lines = LineSplitter(line_bytes)
        self._line_number = 0
        with _room():
            folder.mkdir(parents=True, exist_ok=True)
        self._spool = tempfile.SpooledTemporaryFile(max_size=memory_bytes, dir=str(folder))  # noqa: SIM115
        self._write(rows.HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):  # what is still buffered finds no room on a full disk, and nobody wants it
            self._spool.close()

    def add_items(self, items: Sequence[Any]) -> None:
        """Items of a JSON document that strict_json has read. Raises BadInput naming the item and its field."""
        for item in items:
            self._write(self._row(item, None, f"requests[{len(self.est_tokens)}]"))

    def add_block(self, block: bytes) -> None:
        """A piece of an NDJSON body. Raises BadInput naming the line."""
        try:
            self._add_lines(self._lines.feed(block))
        except LineTooLong as error:
            raise BadInput(f"{error}; split the item or raise SLACKWATER_NDJSON_LINE_MB") from None

    def close(self) -> None:
        """After the last item: take the unterminated last line, refuse an empty batch."""
        self._add_lines(self._lines.close())
        if not self.est_tokens:
            raise BadInput("requests: must hold at least one item")
        self._write(rows.TRAILER)
        with _room():
            self._spool.flush()

    def take_large(self) -> list[tuple[str, bytes]]:
        """Bodies beyond `object_bytes` that came since the last call, with the keys that their rows name. Then forgotten."""
        taken, self._large = self._large, []
        return taken

    @property
    def request_hash(self) -> bytes:
        """SHA-256 over model and items; it tells a repeated request from another one under the same idempotency key."""
        return self._digest.digest()

    def blocks(self) -> Iterator[bytes]:
        """The spool's content, for COPY."""
        self._spool.seek(0)
        while block := self._spool.read(_BLOCK):
            yield block

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        encoded = []
        for line in lines:
            self._line_number += 1
            text = line.strip()
            if not text:
                continue
            where = f"line {self._line_number} (requests[{len(self.est_tokens)}])"
            try:
                item = strict_json.loads(text)
            except strict_json.JsonError as error:
                raise BadInput(f"{where}: {error}") from None
            encoded.append(self._row(item, text, where))
        self._write(b"".join(encoded))

    def _row(self, item: Any, raw: bytes | None, where: str) -> bytes:
        seq = len(self.est_tokens)
        if seq >= self._max_items:
            raise BadInput(f"requests: more than {self._max_items} items; send several batches")
        try:
            facts = examine(item, self._rules)
        except ItemError as error:
            place = f"{where}.{error.field}" if error.field else where
            raise BadInput(f"{place}: {error.message}") from None
        self.est_tokens.append(facts.est_tokens)
        self.warm_keys.append(hash((facts.affinity, facts.prefix)))
        body = raw if raw is not None else orjson.dumps(item)
        self._digest.update(b"%d:" % len(body))
        self._digest.update(body)
        stored = self._object_bytes is not None and len(body) > self._object_bytes
        if stored:
            key = keys.payload(self.batch_id, seq)
            self._large.append((key, body))
            body = key.encode()
        json, affinity = facts.wants_json, facts.affinity
        return rows.payload_row(
            self.batch_id, seq, facts.reference, affinity, facts.est_tokens, body, wants_json=json, stored=stored
        )

    def _write(self, data: bytes) -> None:
        with _room():
            self._spool.write(data)


@contextmanager
def _room() -> Iterator[None]:
    """A disk, or a quota, without room for the spool raises StorageFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFull(
            f"The disk for uploads is full ({os.strerror(error.errno)}); nothing was stored. Send the request again once "
            "the operator has freed space where SLACKWATER_DATA_DIR is."
        ) from error
