"""The items of one submit while they arrive, stored as rows for COPY.

Memory is limited: above `memory_bytes` the spool is a file, and only a few numbers of each item stay in memory.
Synchronous; the callers run it in threads.
"""

import errno
import hashlib
import hmac
import os
import tempfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, NotRequired, Self, TypedDict, Unpack

import orjson

from app import clock
from app.batches.intake.ndjson import LineSplitter
from app.batches.validation.text_generation import ItemFacts
from app.engines.catalogue import Model
from app.engines.requests import UNFIT
from app.errors import BadInput, StorageFull
from app.policy import vaults
from app.policy.vaults import NO_VALUES, Vaults
from app.queue import copy_format
from app.queue.bodies import BatchSeal
from app.sealing.batch_keys import NewKey
from app.storage import object_names

_BLOCK = 256 * 1024
_MOST_BEGINNINGS = 1000  # of prompts, whose items may belong to a family; a workflow may have fewer families
_LEFTOVER_SECONDS = 86_400.0  # no upload takes this long


@dataclass(frozen=True, slots=True)
class Sealing:
    """How a new batch is sealed: its seal, its key, and the secret that keys its request hash."""

    seal: BatchSeal
    key: NewKey
    secret: bytes


@dataclass(frozen=True, slots=True)
class VaultSealing:
    """How the vaults of a new batch in the clear are sealed: a seal, and its data key, which is not wrapped yet."""

    seal: BatchSeal
    key: bytes = field(repr=False)


class SpoolOptions(TypedDict):
    """The folder, the limits and the sealing of a spool. `sealing` None: it is not sealed. `vaults`: seals the values of
    placeholders. `vault_sealing`: seals vaults a second time where `sealing` does not; None: nothing does. `hash_key`: of
    `request_hash`, where items are redacted.
    """

    folder: Path
    memory_bytes: int
    line_bytes: int
    max_items: int
    object_bytes: int | None
    sealing: Sealing | None
    vaults: NotRequired[Vaults | None]
    vault_sealing: NotRequired[VaultSealing | None]
    hash_key: NotRequired[bytes | None]


class _Row(NamedTuple):
    """A row that is not written yet. `values`: of its placeholders."""

    seq: int
    reference: str | None
    facts: ItemFacts
    body: bytes
    model: str | None
    endpoint: str | None
    values: Mapping[str, str]


class Spool(ABC):
    """Collects the items of one batch. A context manager that deletes the spool at its end."""

    def __init__(self, batch_id: int, model: str, **options: Unpack[SpoolOptions]) -> None:
        self.batch_id = batch_id
        self.est_tokens = array("i")
        self.answer_tokens = array("i")  # of the estimates
        self.most_tokens = array("i")  # of each answer
        self.body_bytes = array("q")
        self.warm_keys = array("q")  # items with equal keys should be in one chunk
        self.models: list[Model] = []  # the models of items, in the order of their first use
        self.model_of = array("h")  # by item, the index of its model; 0 without a model
        self.beginnings: dict[str, int] = {}  # of prompts, by their first use: their indexes
        self.beginning_of = array("h")  # by item; -1: one of too many
        self.endpoints: list[str | None] = [None]  # None: that of the batch
        self.endpoint_of = array("h")
        self.has_sessions = False
        self.sealing, self._vault_sealing = options["sealing"], options.get("vault_sealing")
        self._has_vaults = False
        self._object_bytes = options["object_bytes"]
        self._large: list[tuple[str, bytes]] = []
        self._rows: list[_Row] = []  # that are not written yet
        self._waiting_bytes = 0
        begin, key = b"%d:" % len(model.encode()) + model.encode(), options.get("hash_key")
        self._digest = hashlib.sha256(begin) if key is None else hmac.new(key, begin, hashlib.sha256)
        self._is_keyed, self._vaults = key is not None, options.get("vaults")
        self._max_items = options["max_items"]
        self._lines = LineSplitter(options["line_bytes"])
        with catch_disk_full():
            options["folder"].mkdir(parents=True, exist_ok=True)
        self._spool = tempfile.SpooledTemporaryFile(max_size=options["memory_bytes"], dir=str(options["folder"]))  # noqa: SIM115
        self._write(copy_format.HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):  # on a full disk the buffer cannot be written, and it is not needed
            self._spool.close()

    def add_block(self, block: bytes) -> None:
        """Add a block of a body of lines. Raises BadInput naming the line."""
        self._add_lines(self._lines.feed(block))

    def close(self) -> None:
        """To be called after the last item. Raises BadInput for an empty batch."""
        self.end_lines()
        if not self.est_tokens:
            raise BadInput(f"requests: {self._empty()}")
        self._write_rows()
        self._write(copy_format.TRAILER)
        with catch_disk_full():
            self._spool.flush()

    def end_lines(self) -> None:
        """Add the last line, if it has no line end. May be repeated. Raises BadInput naming the line."""
        self._add_lines(self._lines.close())

    def note(self, terms: bytes) -> None:
        """Add further terms of the request to `request_hash`."""
        self._digest.update(b"%d:" % len(terms) + terms)

    def take_large(self) -> list[tuple[str, bytes]]:
        """Return and forget the bodies above `object_bytes` since the last call, with the object names in their rows."""
        self._write_rows()
        taken, self._large = self._large, []
        return taken

    @property
    def request_hash(self) -> bytes:
        """SHA-256 of model and items. It distinguishes a repeated request from another one with the same idempotency key.

        Of a sealed or redacted batch it is keyed, so that no guess of a prompt can be checked with it.
        """
        digest = self._digest.digest()
        return hmac.digest(self.sealing.secret, digest, "sha256") if self.sealing else digest

    @property
    def vault_key(self) -> bytes | None:
        """The data key that has sealed vaults of this batch and nothing else. None: there is none."""
        return self._vault_sealing.key if self._vault_sealing is not None and self._has_vaults else None

    def blocks(self) -> Iterator[bytes]:
        """The spool's content, for COPY."""
        self._spool.seek(0)
        while block := self._spool.read(_BLOCK):
            yield block

    @abstractmethod
    def _add_lines(self, lines: Sequence[bytes]) -> None:
        """Add these lines."""

    def _empty(self) -> str:
        """What is wrong with a batch without items."""
        return "must hold at least one item"

    def _too_many(self, most: int) -> BadInput:
        """The error of a batch of more items."""
        return BadInput(f"requests: more than {most:,} items; send several batches")

    def _add(
        self,
        facts: ItemFacts,
        reference: str | None,
        body: bytes,
        *,
        model: Model | None = None,
        endpoint: str | None = None,
        asked: bytes | None = None,
        values: Mapping[str, str] = NO_VALUES,
    ) -> None:
        """Add the next item. Without model or endpoint it has those of the batch. `asked`: the body as its caller sent it, if it
        was changed. `values`: of its placeholders. Raises BadInput for too many items.
        """
        seq = len(self.est_tokens)
        if seq >= self._max_items:
            raise self._too_many(self._max_items)
        self.est_tokens.append(facts.est_tokens)
        self.answer_tokens.append(facts.answer_tokens)
        self.most_tokens.append(facts.most_tokens)
        self.body_bytes.append(len(body))
        self.warm_keys.append(hash((facts.affinity, facts.prefix)))
        self.has_sessions |= bool(facts.affinity)
        self._add_beginning(facts.beginning)
        self.endpoint_of.append(0 if endpoint is None or endpoint == UNFIT else self._endpoint_index(endpoint))
        place = self._model_index(model)
        self.model_of.append(place)
        self._add_to_hash(endpoint, reference, body if asked is None else asked)
        if values and self._is_keyed:  # those of a line of a redacted file are not in its text
            self.note(orjson.dumps(values))
        name = model.name if model and place else None  # the first model is that of the batch
        self._rows.append(_Row(seq, reference, facts, body, name, endpoint, values))
        self._waiting_bytes += len(body)
        if self._waiting_bytes > _BLOCK:
            self._write_rows()

    def _write_rows(self) -> None:
        """Seal, encode and write the rows that wait. All of them at once, since each step is several times as fast in a row."""
        rows, self._rows, self._waiting_bytes = self._rows, [], 0
        bodies = [row.body for row in rows]
        if self.sealing is not None:
            bodies = self.sealing.seal.payloads(rows[0].seq, bodies) if rows else []
        sealed = [self._vault(row.values, row.seq) if row.values else None for row in rows]
        self._write(b"".join(map(self._encoded, rows, bodies, sealed)))

    def _encoded(self, row: _Row, body: bytes, vault: bytes | None) -> bytes:
        stored = self._object_bytes is not None and len(row.body) > self._object_bytes
        if stored:
            key = object_names.payload(self.batch_id, row.seq)
            self._large.append((key, body))
            body = key.encode()
        facts = row.facts
        return copy_format.payload_row(
            self.batch_id,
            row.seq,
            row.reference,
            facts.affinity,
            facts.est_tokens,
            body,
            wants_json=facts.wants_json,
            stored=stored,
            model=row.model,
            endpoint=row.endpoint,
            vault=vault,
        )

    def _vault(self, values: Mapping[str, str], seq: int) -> bytes:
        assert self._vaults is not None
        self._has_vaults = True
        vault = self._vaults.sealed(values, vaults.of_item(self.batch_id, seq))
        sealing = self.sealing or self._vault_sealing
        return vault if sealing is None else sealing.seal.vault(seq, vault)

    def _add_to_hash(self, endpoint: str | None, reference: str | None, sent: bytes) -> None:
        self._digest.update(b"%s %s %d:" % ((endpoint or "").encode(), (reference or "").encode(), len(sent)))
        self._digest.update(sent)

    def _model_index(self, model: Model | None) -> int:
        if model is None or (self.models and model is self.models[0]):
            return 0
        if model not in self.models:
            self.models.append(model)
        return self.models.index(model)

    def _add_beginning(self, beginning: str) -> None:
        place = self.beginnings.get(beginning, -1)
        if place < 0 and len(self.beginnings) < _MOST_BEGINNINGS:
            place = self.beginnings[beginning] = len(self.beginnings)
        self.beginning_of.append(place)

    def _endpoint_index(self, endpoint: str) -> int:
        if endpoint not in self.endpoints:
            self.endpoints.append(endpoint)
        return self.endpoints.index(endpoint)

    def _write(self, data: bytes) -> None:
        with catch_disk_full():
            self._spool.write(data)


def sweep(folder: Path) -> int:
    """Remove the spools of killed processes: those without a write for a day. Returns their number."""
    old = [
        path
        for path in folder.glob("tmp*")
        if path.is_file() and clock.now().timestamp() - path.stat().st_mtime > _LEFTOVER_SECONDS
    ]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


@contextmanager
def spooled(folder: Path) -> Iterator[IO[bytes]]:
    """A named file in the folder, deleted at the end of the block. Raises StorageFull."""
    with catch_disk_full():
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(dir=folder)  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):  # on a full disk the buffer cannot be written, and it is not needed
            file.close()


@contextmanager
def catch_disk_full() -> Iterator[None]:
    """Turn the errors of a full disk or quota into StorageFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFull(
            f"The disk for uploads is full ({os.strerror(error.errno)}), and nothing was stored. Send the request again after "
            "the operator has freed space on the disk of SLACKWATER_DATA_DIR."
        ) from error
