"""The items of one submit on their way in, kept as ready-made COPY rows.

Memory is bounded: beyond `memory_bytes` the spool is a file, and per item only two numbers are kept.
Synchronous; the service runs it in threads.
"""

import errno
import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypedDict, Unpack

from app import clock
from app.batches.intake.ndjson import LineSplitter, LineTooLong
from app.batches.validation.text_generation import ItemFacts
from app.engines.catalogue import Model
from app.errors import BadInput, StorageFull
from app.queue import copy_format
from app.storage import object_names

_BLOCK = 256 * 1024
_LEFT_SECONDS = 86_400.0  # no upload takes so long


class SpoolOptions(TypedDict):
    """Where the spool is, and the bounds of what it takes."""

    folder: Path
    memory_bytes: int
    line_bytes: int
    max_items: int
    object_bytes: int | None


class Spool(ABC):
    """Collects the items of one batch. A context manager: leaving it deletes the spool."""

    def __init__(self, batch_id: int, model: str, **options: Unpack[SpoolOptions]) -> None:
        self.batch_id = batch_id
        self.est_tokens = array("i")
        self.warm_keys = array("q")  # items with the same one belong together
        self.models: list[Model] = []  # that items name, in the order in which they first do
        self.model_of = array("h")  # by item, its place in `models`; whatever names none goes with the first
        self._object_bytes = options["object_bytes"]
        self._large: list[tuple[str, bytes]] = []
        self._digest = hashlib.sha256(b"%d:" % len(model.encode()) + model.encode())
        self._max_items = options["max_items"]
        self._lines = LineSplitter(options["line_bytes"])
        with room():
            options["folder"].mkdir(parents=True, exist_ok=True)
        self._spool = tempfile.SpooledTemporaryFile(max_size=options["memory_bytes"], dir=str(options["folder"]))  # noqa: SIM115
        self._write(copy_format.HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):  # what is still buffered finds no room on a full disk, and nobody wants it
            self._spool.close()

    def add_block(self, block: bytes) -> None:
        """A piece of a body of lines. Raises BadInput naming the line."""
        try:
            self._add_lines(self._lines.feed(block))
        except LineTooLong as error:
            raise BadInput(f"{error}; split the item or raise SLACKWATER_NDJSON_LINE_MB") from None

    def close(self) -> None:
        """After the last item: refuse an empty batch."""
        self.end_lines()
        if not self.est_tokens:
            raise BadInput("requests: must hold at least one item")
        self._write(copy_format.TRAILER)
        with room():
            self._spool.flush()

    def end_lines(self) -> None:
        """Take the last line, if it did not end in a line end. May be repeated."""
        self._add_lines(self._lines.close())

    def note(self, terms: bytes) -> None:
        """What else tells this request from another one; see `request_hash`."""
        self._digest.update(b"%d:" % len(terms) + terms)

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

    @abstractmethod
    def _add_lines(self, lines: Sequence[bytes]) -> None:
        """Take these lines."""

    def _row(
        self,
        facts: ItemFacts,
        reference: str | None,
        body: bytes,
        *,
        model: Model | None = None,
        endpoint: str | None = None,
    ) -> bytes:
        """The row of the next item; no model, no endpoint: the batch's. Raises BadInput when there are too many."""
        seq = len(self.est_tokens)
        if seq >= self._max_items:
            raise BadInput(f"requests: more than {self._max_items} items; send several batches")
        self.est_tokens.append(facts.est_tokens)
        self.warm_keys.append(hash((facts.affinity, facts.prefix)))
        place = self._place(model)
        self.model_of.append(place)
        self._digest.update(b"%s %s %d:" % ((endpoint or "").encode(), (reference or "").encode(), len(body)))
        self._digest.update(body)
        stored = self._object_bytes is not None and len(body) > self._object_bytes
        if stored:
            key = object_names.payload(self.batch_id, seq)
            self._large.append((key, body))
            body = key.encode()
        return copy_format.payload_row(
            self.batch_id,
            seq,
            reference,
            facts.affinity,
            facts.est_tokens,
            body,
            wants_json=facts.wants_json,
            stored=stored,
            model=model.name if model and place else None,  # the first one is the batch's
            endpoint=endpoint,
        )

    def _place(self, model: Model | None) -> int:
        if model is None or (self.models and model is self.models[0]):
            return 0
        if model not in self.models:
            self.models.append(model)
        return self.models.index(model)

    def _write(self, data: bytes) -> None:
        with room():
            self._spool.write(data)


def sweep(folder: Path) -> int:
    """Remove what processes that were killed have left behind: spools that nobody has written to for a day. Returns how many."""
    old = [
        path
        for path in folder.glob("tmp*")
        if path.is_file() and clock.now().timestamp() - path.stat().st_mtime > _LEFT_SECONDS
    ]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


@contextmanager
def spooled(folder: Path) -> Iterator[IO[bytes]]:
    """A named file in the folder, until the block is left. Raises StorageFull where there is no room to make it."""
    with room():
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(dir=folder)  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):  # what is still buffered finds no room on a full disk, and nobody wants it
            file.close()


@contextmanager
def room() -> Iterator[None]:
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
