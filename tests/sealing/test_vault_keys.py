"""Claims about the data key under which the values behind placeholders lie: what its destruction makes of copies of them."""

from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.batches import key_rotation
from app.crypto import secret_key
from app.engines import catalogue
from app.errors import KeysUnavailable
from app.policy import service as policies
from app.policy.vaults import Vaults, of_item
from app.queue.bodies import StoredBodies
from app.sealing import batch_keys, keyring
from app.sealing.keyring import Keyring, WrappedKey
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyScope
from testing.fakes.vault import TOKEN, FakeVault
from tests.api import in_process
from tests.api.support import BATCHES, SUBMIT
from tests.gpu.world import World
from tests.sealing.support import on_disk

MAIL = "vaulted.person@hidden.example"
RULE = '[[rule]]\nid = "all"\nsensitive = "tokenize"\n'


@pytest.fixture(params=["sealed", "vaults alone"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Everything is sealed; or bodies lie in the clear, and the installation names a key provider."""
    if request.param == "sealed":
        return settings.model_copy(update={"encrypt": "on"})
    return settings.model_copy(update={"encrypt": "off", "key_provider": f"file://{settings.data_dir}/keys"})


@pytest.fixture
async def reader(client: httpx.AsyncClient, world: World) -> dict[str, str]:
    """The headers of a key that may restore, where everything is tokenized."""
    settings = world.settings
    async with world.database.transaction() as conn:
        await policies.apply(conn, RULE, catalogue.load(settings.models_file), "test")
        key = await tenants.create_key(conn, secret_key(settings), "acme", "reader", scope=KeyScope(restore=True))
    await in_process.application().state.parts.admission.policy.renew()
    return {"authorization": f"Bearer {key}"}


async def submit(client: httpx.AsyncClient, text: str = MAIL) -> str:
    sent = await client.post(SUBMIT, json={"requests": [{"prompt": f"write to {text}", "max_tokens": 9}]})
    assert sent.status_code == 200, sent.text
    return str(sent.json()["result"]["request_id"])


async def run(world: World, settings: Settings) -> None:
    async with world.worker(encrypt=settings.encrypt, key_provider=settings.key_provider):
        await world.until("count(*) = 0 from batch where finalized_at is null")


async def stored(world: World) -> tuple[int, bytes]:
    [(batch_id, vault)] = await world.fetch("select batch_id, vault from item_payload where vault is not null")
    return batch_id, bytes(vault)


async def test_copies_of_a_vault_open_with_no_key_that_exists_once_its_batch_is_deleted_and_the_accounts_key_rotated(
    client: httpx.AsyncClient, world: World, settings: Settings, reader: dict[str, str]
) -> None:
    request_id = await submit(client)
    await run(world, settings)
    shown = await client.get(f"{BATCHES}/{request_id}/results", headers=reader)
    hidden = await client.get(f"{BATCHES}/{request_id}/results")
    assert (MAIL in shown.text, MAIL in hidden.text, "[EMAIL_1]" in hidden.text) == (True, False, True)
    batch_id, copy = await stored(world)
    [(kek, wrapped, only_vaults)] = await world.fetch("select kek, wrapped, only_vaults from batch_key")
    backup = WrappedKey(kek, bytes(wrapped))
    assert only_vaults == (settings.encrypt == "off")
    [(first,)] = await world.fetch("select get_byte(body, 0) = 1 from item_result")
    assert first == (settings.encrypt == "on"), "an answer is stored as its batch is"

    vaults = Vaults(secret_key(settings), world.tenant)
    assert vaults.opened(copy, of_item(batch_id, 0)) == {}, "the secret key alone opens nothing"
    opened = await StoredBodies(world.database, Keyring.of(settings), batch_id).vault(0, copy)
    assert vaults.opened(opened, of_item(batch_id, 0)) == {"[EMAIL_1]": MAIL}
    with pytest.raises(KeysUnavailable):
        await StoredBodies(world.database, Keyring.of(settings), batch_id).vault(1, copy)

    assert (await client.delete(f"{BATCHES}/{request_id}")).status_code == 200
    assert await world.fetch("select from batch_key") == []
    with pytest.raises(KeysUnavailable, match="destroyed"):
        await StoredBodies(world.database, Keyring.of(settings), batch_id).vault(0, copy)
    assert await on_disk(world.database, settings.data_dir, text=MAIL) == []

    keyring.forget_cached()
    await Keyring.of(settings).open(backup, batch_keys.context(batch_id))
    await key_rotation.rotate(world.database, settings, "acme")
    keyring.forget_cached()
    with pytest.raises(KeysUnavailable) as refusal:
        await Keyring.of(settings).open(backup, batch_keys.context(batch_id))
    assert refusal.value.gone


async def test_a_rotation_of_the_accounts_key_keeps_values_readable(
    client: httpx.AsyncClient, world: World, settings: Settings, reader: dict[str, str]
) -> None:
    request_id = await submit(client)
    await run(world, settings)
    done = await key_rotation.rotate(world.database, settings, "acme")
    keyring.forget_cached()
    assert done.rewrapped == 1
    assert MAIL in (await client.get(f"{BATCHES}/{request_id}/results", headers=reader)).text


async def test_a_vault_from_before_data_keys_opens_beside_newer_ones(
    client: httpx.AsyncClient, world: World, settings: Settings, reader: dict[str, str]
) -> None:
    request_id = await submit(client)
    await run(world, settings)
    batch_id, _ = await stored(world)
    old = Vaults(secret_key(settings), world.tenant).sealed({"[EMAIL_1]": "old@hidden.example"}, of_item(batch_id, 0))
    async with world.database.durable() as conn:
        await conn.execute("update item_payload set vault = %s", (old,))
    assert "old@hidden.example" in (await client.get(f"{BATCHES}/{request_id}/results", headers=reader)).text


async def test_a_batch_in_the_clear_without_placeholders_asks_no_provider(
    client: httpx.AsyncClient, world: World, settings: Settings, reader: dict[str, str], key: str
) -> None:
    async with FakeVault() as vault:
        changed = {"encrypt": "off", "key_provider": vault.url, "vault_token": SecretStr(TOKEN)}
        async with in_process.running(settings.model_copy(update=changed), key) as (_, plain):
            vault.away = True
            await submit(plain, "nobody")
            refused: Any = await plain.post(SUBMIT, json={"requests": [{"prompt": f"write to {MAIL}"}]})
            assert (refused.status_code, "Vault answered 503" in refused.text) == (503, True)
    assert await world.fetch("select (select count(*) from batch), (select count(*) from batch_key)") == [(1, 0)]


async def test_without_a_provider_and_encryption_the_secret_key_alone_seals_values(
    client: httpx.AsyncClient, world: World, settings: Settings, reader: dict[str, str], key: str
) -> None:
    async with in_process.running(settings.model_copy(update={"encrypt": "off", "key_provider": ""}), key) as (
        _,
        plain,
    ):
        await submit(plain)
    batch_id, vault = await stored(world)
    assert Vaults(secret_key(settings), world.tenant).opened(vault, of_item(batch_id, 0)) == {"[EMAIL_1]": MAIL}
    assert await world.fetch("select from batch_key") == []
