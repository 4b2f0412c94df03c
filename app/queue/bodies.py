"""The one place where the bodies of a batch are sealed and opened: payloads, results, and the events of its responses; and
where the vaults of its items, which are sealed under the secret key already, are sealed under its data key, too.

A sealed body opens only at its place: batch, item, run and column. All bodies of a sealed batch are sealed, so one in the clear
was put there by somebody else, and is not opened; errors that SQL writes, which know no key, are in the clear.
"""

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import orjson
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.db.pool import Connection, Database
from app.errors import KeysUnavailable
from app.queue.types import Item
from app.sealing import batch_keys, sealed_form
from app.sealing.batch_keys import NewKey
from app.sealing.keyring import Keyring, WrappedKey
from app.sealing.sealed_form import Unreadable, is_sealed

T = TypeVar("T")
_PLACE = struct.Struct("!qihc")  # batch, seq, run, column
_PAYLOAD, _RESULT, _EVENTS, _VAULT = b"p", b"r", b"e", b"v"
_SEALED_VAULT = b"\x02"  # the first byte of a vault under a data key; one under the secret key alone begins with 0x01


def is_incomplete(answer: bytes) -> bool:
    """Whether an engine's answer, sealed or not, has the status `incomplete`. It needs no key."""
    if is_sealed(answer):
        return sealed_form.is_incomplete(answer)
    return b'"incomplete"' in answer and bool(orjson.loads(answer).get("status") == "incomplete")


class BatchSeal:
    """Seals and opens the bodies of one batch. Opening raises KeysUnavailable, also for what is not sealed."""

    def __init__(self, batch_id: int, cipher: AESGCM) -> None:
        self._batch_id, self._cipher, self._nonces = batch_id, cipher, sealed_form.Nonces()

    def payload(self, seq: int, body: bytes) -> bytes:
        """An item's body, sealed."""
        return sealed_form.seal(self._cipher, self._nonces.next(), body, self._place(seq, 0, _PAYLOAD))

    def payloads(self, first: int, bodies: Sequence[bytes]) -> list[bytes]:
        """The bodies of items that follow each other, sealed. `first`: the number of the first one."""
        return [self.payload(seq, body) for seq, body in enumerate(bodies, first)]

    def open_payload(self, seq: int, body: bytes) -> bytes:
        """An item's body."""
        return self._opened(body, self._place(seq, 0, _PAYLOAD))

    def result(self, seq: int, run: int, body: bytes) -> bytes:
        """A result's body, sealed."""
        incomplete = b'"incomplete"' in body and is_incomplete(body)
        place = self._place(seq, run, _RESULT)
        return sealed_form.seal(self._cipher, self._nonces.next(), body, place, incomplete=incomplete)

    def open_result(self, seq: int, run: int, body: bytes) -> bytes:
        """A result's body."""
        return self._opened(body, self._place(seq, run, _RESULT))

    def events(self, body: bytes) -> bytes:
        """A row of events, sealed. Their numbers are assigned as the row is written, so it is bound to its batch alone."""
        return sealed_form.seal(self._cipher, self._nonces.next(), body, self._place(0, 0, _EVENTS))

    def open_events(self, body: bytes) -> bytes:
        """A row of events."""
        return self._opened(body, self._place(0, 0, _EVENTS))

    def vault(self, seq: int, vault: bytes) -> bytes:
        """An item's vault, sealed."""
        sealed = sealed_form.seal(self._cipher, self._nonces.next(), vault, self._place(seq, 0, _VAULT))
        return _SEALED_VAULT + sealed

    def open_vault(self, seq: int, vault: bytes) -> bytes:
        """An item's vault, as it was sealed under the secret key."""
        return self._opened(vault.removeprefix(_SEALED_VAULT), self._place(seq, 0, _VAULT))

    def _place(self, seq: int, run: int, column: bytes) -> bytes:
        return _PLACE.pack(self._batch_id, seq, run, column)

    def _opened(self, body: bytes, place: bytes) -> bytes:
        if not is_sealed(body):
            raise _exchanged()
        try:
            return sealed_form.unseal(self._cipher, body, place)
        except Unreadable as error:
            raise KeysUnavailable(f"A body of the batch is not readable: {error}", gone=True) from error


def _exchanged() -> KeysUnavailable:
    return KeysUnavailable(
        "A body of the batch is not readable: the batch is sealed, and this is in the clear", gone=True
    )


async def new_seal(database: Database, keyring: Keyring, tenant_id: int, batch_id: int) -> tuple[BatchSeal, NewKey]:
    """The seal of a new batch, and its key, which its submit stores. Raises KeysUnavailable."""
    key = await batch_keys.make(database, keyring, tenant_id, batch_keys.context(batch_id))
    return BatchSeal(batch_id, key.cipher), key


def new_vault_seal(batch_id: int) -> tuple[BatchSeal, bytes]:
    """A seal for the vaults of a new batch whose bodies are not sealed, and its data key in the clear. No I/O: the key is wrapped
    when the batch is stored, if it has a vault.
    """
    key = sealed_form.new_key()
    return BatchSeal(batch_id, AESGCM(key)), key


async def opened(keyring: Keyring, batch_id: int, items: list[Item]) -> tuple[list[Item], BatchSeal | None]:
    """Loaded items with their bodies opened, but for those in the object store, and the seal of their batch if it has one.

    Raises KeysUnavailable.
    """
    if not items or items[0].kek is None or items[0].wrapped_key is None:
        return items, None
    wrapped = WrappedKey(items[0].kek, items[0].wrapped_key)
    seal = BatchSeal(batch_id, await keyring.open(wrapped, batch_keys.context(batch_id)))
    return [i if i.stored else i._replace(body=seal.open_payload(i.seq, i.body)) for i in items], seal


class StoredBodies:
    """Opens stored bodies of one batch. Its key is read when the first sealed one comes; whether there is one, when the first in
    the clear comes. All raise KeysUnavailable.
    """

    def __init__(self, source: Connection | Database, keyring: Keyring, batch_id: int) -> None:
        self._source, self._keyring, self._batch_id = source, keyring, batch_id
        self._seal: BatchSeal | None = None
        self._must_be_sealed: bool | None = None

    async def payload(self, seq: int, body: bytes) -> bytes:
        """An item's body."""
        return (await self.seal()).open_payload(seq, body) if is_sealed(body) else await self._clear(body)

    async def result(self, seq: int, run: int, body: bytes, *, ok: bool = True) -> bytes:
        """A result's body. `ok`: it is an answer, not an error."""
        if is_sealed(body):
            return (await self.seal()).open_result(seq, run, body)
        return await self._clear(body) if ok else body

    async def events(self, body: bytes) -> bytes:
        """A row of events."""
        return (await self.seal()).open_events(body) if is_sealed(body) else await self._clear(body)

    async def sealed_payload(self, seq: int, body: bytes) -> bytes:
        """An item's new body as it is stored: sealed, if the batch is."""
        return (await self.seal()).payload(seq, body) if await self._is_sealed() else body

    async def sealed_events(self, body: bytes) -> bytes:
        """A new row of events as it is stored: sealed, if the batch is."""
        return (await self.seal()).events(body) if await self._is_sealed() else body

    async def sealed_result(self, seq: int, run: int, body: bytes) -> bytes:
        """A new result's body as it is stored: sealed, if the batch is."""
        return (await self.seal()).result(seq, run, body) if await self._is_sealed() else body

    async def vault(self, seq: int, vault: bytes) -> bytes:
        """An item's vault, as it was sealed under the secret key."""
        return (await self.seal()).open_vault(seq, vault) if vault[:1] == _SEALED_VAULT else vault

    async def sealed_vault(self, seq: int, vault: bytes) -> bytes:
        """An item's vault as it is stored: sealed once more, if the batch has a key."""
        if self._seal is None and await self._asked(batch_keys.read) is None:
            return vault
        return (await self.seal()).vault(seq, vault)

    async def seal(self) -> BatchSeal:
        """The seal of a sealed batch."""
        if self._seal is None:
            wrapped = await self._asked(batch_keys.read)
            if wrapped is None:
                raise KeysUnavailable("The key of the batch was destroyed: its contents are deleted", gone=True)
            cipher = await self._keyring.open(wrapped, batch_keys.context(self._batch_id))
            self._seal = BatchSeal(self._batch_id, cipher)
        return self._seal

    async def _clear(self, body: bytes) -> bytes:
        """A body in the clear."""
        if await self._is_sealed():
            raise _exchanged()
        return body

    async def _is_sealed(self) -> bool:
        if self._must_be_sealed is None:
            self._must_be_sealed = await self._asked(batch_keys.seals_bodies)
        return self._must_be_sealed

    async def _asked(self, question: Callable[[Connection, int], Awaitable[T]]) -> T:
        if isinstance(self._source, Database):
            async with self._source.relaxed() as conn:
                return await question(conn, self._batch_id)
        return await question(self._source, self._batch_id)
