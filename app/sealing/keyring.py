"""The data keys of one process. A key that was unwrapped is kept for CACHE_SECONDS, so that most calls need no provider.

The wrapped key is read from the database each time: once its row is deleted, no process opens anything with it.
"""

from collections import OrderedDict
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app import clock
from app.errors import KeysUnavailable
from app.sealing import providers, sealed_form
from app.sealing.providers import KeyProvider
from app.settings import Settings

CACHE_SECONDS = 300.0
_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as it is stored. `kek`: the name of the key that wraps it."""

    kek: str
    wrapped: bytes


class Keyring:
    """Makes and opens data keys with a key provider. Raises KeysUnavailable."""

    def __init__(self, provider: KeyProvider) -> None:
        self.provider = provider
        self._open: OrderedDict[tuple[WrappedKey, bytes], tuple[AESGCM, float]] = OrderedDict()

    @classmethod
    def of(cls, settings: Settings) -> "Keyring":
        """The keyring of this process for the provider that the settings name."""
        place = providers.place(settings), settings.vault_token.get_secret_value()
        if place not in _RINGS:
            _RINGS[place] = cls(providers.of(settings))
        return _RINGS[place]

    async def make(self, kek: str, context: bytes) -> tuple[AESGCM, WrappedKey]:
        """A new data key, and its wrapped form for this context."""
        key = sealed_form.new_key()
        wrapped = await self.wrap(kek, key, context)
        return self._kept((wrapped, context), AESGCM(key)), wrapped

    async def wrap(self, kek: str, key: bytes, context: bytes) -> WrappedKey:
        """The wrapped form of a data key for this context."""
        return WrappedKey(kek, await self.provider.wrap(kek, key, context))

    async def open(self, wrapped: WrappedKey, context: bytes) -> AESGCM:
        """The data key that was wrapped for this context."""
        place = wrapped, context
        found = self._open.get(place)
        if found is not None and found[1] > clock.monotonic():
            return found[0]
        key = await self.provider.unwrap(wrapped.kek, wrapped.wrapped, context)
        return self._kept(place, AESGCM(key))

    async def rewrapped(self, wrapped: bytes, retired: str, kek: str, context: bytes) -> bytes:
        """A data key that `retired` wraps, wrapped by `kek`."""
        return await self.provider.wrap(kek, await self.provider.unwrap(retired, wrapped, context), context)

    def _kept(self, place: tuple[WrappedKey, bytes], cipher: AESGCM) -> AESGCM:
        self._open[place] = cipher, clock.monotonic() + CACHE_SECONDS
        self._open.move_to_end(place)
        while len(self._open) > _MOST_KEPT:
            self._open.popitem(last=False)
        return cipher


_RINGS: dict[tuple[str, str], Keyring] = {}  # by the provider's URL and token


def forget_cached() -> None:
    """Forget every key of this process, as a restart would."""
    _RINGS.clear()


def has_keys(settings: Settings) -> bool:
    """Whether the installation has keys beside the secret key: it encrypts, or names a key provider."""
    return settings.encrypt != "off" or bool(settings.key_provider)


def wanted(settings: Settings, rule: str | None) -> bool:
    """Whether something is to be sealed. `rule`: the rule of the policy that asks for it; None: none does.

    Raises KeysUnavailable where a rule asks for it, but the installation does not encrypt.
    """
    if rule is not None and settings.encrypt == "off":
        raise KeysUnavailable(
            f"Policy rule {rule} asks for encryption, but SLACKWATER_ENCRYPT is off: nothing was stored. Ask the operator."
        )
    return settings.encrypt == "on" or rule is not None
