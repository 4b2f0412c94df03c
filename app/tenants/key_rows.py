"""How a key lies in its row: the hash of its secret, its scope, and its pinned labels. Pure."""

import hmac
from collections.abc import Sequence

from app import crypto
from app.tenants.api_key import ApiKey
from app.tenants.key_scope import KeyRole, KeyScope, Network, described


def matching(key: ApiKey, pepper: bytes, *hashes: bytes | None) -> bytes | None:
    """The stored hash that is of this key under an accepted master key. None: none is."""
    for master in crypto.accepted(pepper):
        given = key.hashed(master)
        for each in hashes:
            if each is not None and hmac.compare_digest(each, given):
                return each
    return None


def hashed(key: ApiKey, pepper: bytes) -> dict[str, object]:
    """The columns of its secret."""
    return {"secret_hash": key.hashed(pepper), "master_key": crypto.key_id(pepper)}


def stored(scope: KeyScope) -> dict[str, object]:
    """The columns of a scope."""
    return described(scope) | {"networks": None if scope.networks is None else list(scope.networks)}


def scope_of(
    role: str,
    models: Sequence[str] | None,
    endpoints: Sequence[str] | None,
    networks: Sequence[Network] | None,
    restore: bool,
) -> KeyScope:
    """The scope of these columns."""
    return KeyScope(
        KeyRole(role),
        None if models is None else frozenset(models),
        None if endpoints is None else frozenset(endpoints),
        None if networks is None else tuple(networks),
        restore,
    )


def pins_of(column: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """The labels of this column."""
    pairs = (text.partition("=") for text in column or ())
    return tuple((name, value) for name, _, value in pairs)
