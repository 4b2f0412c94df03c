"""Claims about key providers: the folder, Vault (a fake of it), and a package's own."""

import importlib.metadata
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.errors import KeysUnavailable
from app.sealing import providers
from app.sealing.keyring import Keyring
from app.sealing.providers import KeyFolder, KeyProvider, VaultTransit
from app.settings import Settings
from testing.fakes import vault as fake_vault
from testing.fakes.vault import TOKEN, FakeVault

KEY = bytes(range(32))


@pytest.fixture(params=["folder", "vault"])
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeyProvider]:
    """Each kind of provider."""
    if request.param == "folder":
        yield KeyFolder(tmp_path / "keys")
        return
    async with FakeVault() as vault:
        yield VaultTransit(vault.url.removeprefix("vault+"), TOKEN)


async def test_a_wrapped_key_unwraps_for_its_context_only(provider: KeyProvider) -> None:
    wrapped = await provider.wrap("slackwater-1", KEY, b"batch 1")
    assert KEY not in wrapped
    assert await provider.unwrap("slackwater-1", wrapped, b"batch 1") == KEY
    with pytest.raises(KeysUnavailable) as refusal:
        await provider.unwrap("slackwater-1", wrapped, b"batch 2")
    assert refusal.value.gone


async def test_nothing_unwraps_once_the_key_is_destroyed(provider: KeyProvider) -> None:
    wrapped = await provider.wrap("slackwater-1", KEY, b"batch 1")
    other = await provider.wrap("slackwater-2", KEY, b"batch 1")
    await provider.destroy("slackwater-1")
    await provider.destroy("slackwater-1")  # a rotation that was killed repeats it
    with pytest.raises(KeysUnavailable) as refusal:
        await provider.unwrap("slackwater-1", wrapped, b"batch 1")
    assert (refusal.value.gone, refusal.value.status) == (True, 410)
    assert await provider.unwrap("slackwater-2", other, b"batch 1") == KEY


async def test_a_vault_that_does_not_answer_or_refuses_is_unavailable_not_gone() -> None:
    async with FakeVault() as vault:
        good = VaultTransit(vault.url.removeprefix("vault+"), TOKEN)
        wrapped = await good.wrap("slackwater-1", KEY, b"")
        vault.away = True
        with pytest.raises(KeysUnavailable, match=r"503.*sealed") as refusal:
            await good.unwrap("slackwater-1", wrapped, b"")
        assert not refusal.value.gone
        vault.away = False
        with pytest.raises(KeysUnavailable, match=r"403.*permission denied") as refusal:
            await VaultTransit(vault.url.removeprefix("vault+"), "wrong").unwrap("slackwater-1", wrapped, b"")
        assert not refusal.value.gone
    with pytest.raises(KeysUnavailable, match="does not answer") as refusal:
        await good.unwrap("slackwater-1", wrapped, b"")
    assert (refusal.value.gone, refusal.value.status) == (False, 503)


@pytest.mark.parametrize(
    ("status", "reason", "gone"),
    [
        (400, "encryption key not found", True),
        (400, "no existing key named so could be found", True),
        (404, "", True),
        (400, "missing client token", False),
        (400, "ciphertext or signature version is disallowed by policy (too old)", False),
        (412, "required index state not present", False),
    ],
)
async def test_only_a_key_that_vault_says_it_does_not_have_is_gone(
    monkeypatch: pytest.MonkeyPatch, status: int, reason: str, gone: bool
) -> None:
    async with FakeVault() as vault:
        provider = VaultTransit(vault.url.removeprefix("vault+"), TOKEN)
        wrapped = await provider.wrap("slackwater-1", KEY, b"batch 1")
        monkeypatch.setattr(vault, "_decrypt", lambda *_: fake_vault._errors(status, reason))
        with pytest.raises(KeysUnavailable) as refusal:
            await provider.unwrap("slackwater-1", wrapped, b"batch 1")
    assert refusal.value.gone is gone


@pytest.mark.parametrize(
    ("place", "accepted"),
    [
        ("vault+https://vault.example.com:8200/transit", True),
        ("vault+http://127.0.0.1:8200/transit", True),
        ("vault+http://[::1]:8200/transit", True),
        ("vault+http://localhost/transit", True),
        ("vault+http://vault.example.com:8200/transit", False),
        ("vault+http://localhost.example.com/transit", False),
        ("vault+http://localhost:1@vault.example.com/transit", False),
        ("vault+http://127.0.0.1.example.com:8200/transit", False),
    ],
)
def test_vault_is_reached_in_the_clear_on_loopback_alone(place: str, accepted: bool) -> None:
    if accepted:
        assert Settings(key_provider=place).key_provider == place
    else:
        with pytest.raises(ValidationError):
            Settings(key_provider=place)


async def test_key_files_are_for_their_owner_alone_and_a_name_is_no_path(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path / "keys")
    await folder.wrap("slackwater-1", KEY, b"")
    [file] = (tmp_path / "keys").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeysUnavailable):
        await folder.wrap("../elsewhere", KEY, b"")


async def test_a_package_can_bring_a_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    point = importlib.metadata.EntryPoint("mine", "tests.sealing.test_providers:_Own", providers.ENTRY_POINTS)
    monkeypatch.setattr(
        providers, "entry_points", lambda group, name: [point] if (group, name) == (point.group, "mine") else []
    )
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: _Own)
    ring = Keyring.of(Settings(data_dir=tmp_path, key_provider="entry:mine"))
    _, wrapped = await ring.make("slackwater-1", b"")
    assert wrapped.wrapped.startswith(b"own")
    with pytest.raises(KeysUnavailable, match="other"):
        Keyring.of(Settings(data_dir=tmp_path, key_provider="entry:other"))


async def test_a_key_is_unwrapped_once_in_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeVault() as vault:
        ring = Keyring(VaultTransit(vault.url.removeprefix("vault+"), TOKEN))
        _, wrapped = await Keyring(ring.provider).make("slackwater-1", b"x")
        for _ in range(3):
            await ring.open(wrapped, b"x")
        assert vault.calls.count("POST decrypt") == 1
        monkeypatch.setattr("app.sealing.keyring.CACHE_SECONDS", -1.0)
        _, fresh = await ring.make("slackwater-1", b"x")
        for _ in range(2):
            await ring.open(fresh, b"x")
        assert vault.calls.count("POST decrypt") == 3


class _Own:
    async def wrap(self, kek: str, key: bytes, context: bytes) -> bytes:
        return b"own" + key

    async def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes:
        return wrapped[3:]

    async def destroy(self, kek: str) -> None:
        raise NotImplementedError
