"""Seals and opens what turns contain. The key of a conversation, or of a tree of responses, is one row of `turn_key`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app import cells
from app.db.pool import Connection, Database
from app.errors import KeysUnavailable
from app.sealing import batch_keys, sealed_form, sql
from app.sealing.batch_keys import NewKey
from app.sealing.keyring import Keyring, WrappedKey
from app.sealing.sealed_form import Unreadable, is_sealed

INPUT, ORIGINAL, OUTPUT, VAULT, SUMMARY = b"i", b"o", b"r", b"v", b"s"
_SEALED_VAULT = b"\x02"  # the first byte of a vault under a data key; one under the secret key alone begins with 0x01


@dataclass(frozen=True, slots=True)
class TurnSeal:
    """The seal of the turns under one key. `key_id` None: they are in the clear. `new`: to be stored with the first of them."""

    key_id: UUID | None = None
    cipher: AESGCM | None = None
    new: NewKey | None = None

    def sealed(self, owner: UUID, column: bytes, body: bytes) -> bytes:
        """A body for its place: the turn or session that has it, and the column."""
        if self.cipher is None:
            return body
        return sealed_form.seal(self.cipher, sealed_form.Nonces().next(), body, owner.bytes + column)

    def opened(self, owner: UUID, column: bytes, body: bytes) -> bytes:
        """The body at this place. Raises KeysUnavailable."""
        if self.cipher is None:
            if is_sealed(body):
                raise KeysUnavailable(
                    "A turn of the conversation is not readable: it is sealed, and names no key", gone=True
                )
            return body
        if not is_sealed(body):
            raise KeysUnavailable(
                "A turn of the conversation is not readable: it is sealed, and this is in the clear", gone=True
            )
        try:
            return sealed_form.unseal(self.cipher, body, owner.bytes + column)
        except Unreadable as error:
            raise KeysUnavailable(f"A turn of the conversation is not readable: {error}", gone=True) from error

    def sealed_vault(self, owner: UUID, vault: bytes) -> bytes:
        """A vault, which is sealed under the secret key already."""
        return vault if self.cipher is None else _SEALED_VAULT + self.sealed(owner, VAULT, vault)

    def opened_vault(self, owner: UUID, vault: bytes) -> bytes:
        """The vault as it is under the secret key."""
        if vault[:1] != _SEALED_VAULT:
            return vault
        return self.opened(owner, VAULT, vault[1:])


CLEAR = TurnSeal()


async def new_seal(database: Database, keyring: Keyring, tenant_id: int) -> TurnSeal:
    """A seal with a new key, which `store` keeps. Raises KeysUnavailable."""
    key_id = cells.new_id()
    key = await batch_keys.make(database, keyring, tenant_id, key_id.bytes)
    return TurnSeal(key_id, key.cipher, key)


async def store(conn: Connection, seal: TurnSeal) -> None:
    """Store the key of a new seal. Call in the transaction that writes its first turn. Raises KeysUnavailable."""
    if seal.new is not None:
        await batch_keys.check_current(conn, seal.new)
        wrapped = seal.new.wrapped
        values = {"key_id": seal.key_id, "tenant_id": seal.new.tenant_id, "kek": wrapped.kek}
        await conn.execute(sql.ADD_TURN_KEY, values | {"wrapped": wrapped.wrapped})


async def wrapped_keys(conn: Connection, key_ids: Iterable[UUID | None]) -> dict[UUID, WrappedKey]:
    """The wrapped keys with these ids; those that were destroyed are missing."""
    wanted = [each for each in set(key_ids) if each is not None]
    if not wanted:
        return {}
    rows = await (await conn.execute(sql.TURN_KEYS, {"key_ids": wanted})).fetchall()
    return {key_id: WrappedKey(kek, wrapped) for key_id, kek, wrapped in rows}


async def seals_of(keyring: Keyring, keys: Mapping[UUID, WrappedKey]) -> dict[UUID | None, TurnSeal]:
    """The seals of these keys by id, and that of turns in the clear. It may ask the key provider. Raises KeysUnavailable."""
    found: dict[UUID | None, TurnSeal] = {None: CLEAR}
    for key_id, wrapped in keys.items():
        found[key_id] = TurnSeal(key_id, await keyring.open(wrapped, key_id.bytes))
    return found


async def forget(conn: Connection, key_id: UUID | None) -> None:
    """Destroy a key: what it sealed cannot be read again, not from a backup of the tables either."""
    if key_id is not None:
        await conn.execute(sql.FORGET_TURN_KEY, {"key_id": key_id})
