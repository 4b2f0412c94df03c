"""Claims about redaction and encryption together, and about values behind placeholders after a change of the secret key."""

import json

import httpx
import pytest

from app.crypto import MasterKey, secret_key
from app.engines import catalogue
from app.policy import service as policies
from app.policy.vaults import Vaults, of_item
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyScope
from tests.api import in_process
from tests.api.support import BATCHES, SUBMIT
from tests.gpu.world import World
from tests.sealing.support import PLANTED, on_disk

MAIL = "somebody@hidden.example"
RULE = '[[rule]]\nid = "all"\nsensitive = "tokenize"\n'


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"encrypt": "on"})


async def test_what_is_redacted_and_sealed_is_nowhere_on_disk_and_restored_exactly(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    async with world.database.transaction() as conn:
        await policies.apply(conn, RULE, catalogue.load(settings.models_file), "test")
        reader = await tenants.create_key(conn, secret_key(settings), "acme", "reader", scope=KeyScope(restore=True))
    await in_process.application().state.parts.admission.policy.renew()
    items = [{"prompt": f"{PLANTED} {MAIL}", "max_tokens": 9}]
    sent = await client.post(SUBMIT, json={"requests": items})
    assert sent.status_code == 200, sent.text
    async with world.worker():
        await world.until("count(*) = 1 from batch where finalized_at is not null")
    assert await on_disk(world.database, settings.data_dir) == []
    url = f"{BATCHES}/{sent.json()['result']['request_id']}/results"
    hidden = json.dumps((await client.get(url)).json())
    shown = json.dumps((await client.get(url, headers={"authorization": f"Bearer {reader}"})).json())
    assert (f"{PLANTED} [EMAIL_1]" in hidden, MAIL in hidden) == (True, False)
    assert f"{PLANTED} {MAIL}" in shown


def test_values_behind_placeholders_open_with_an_earlier_secret_key_while_it_is_accepted() -> None:
    values, place = {"[EMAIL_1]": MAIL}, of_item(1, 2)
    vault = Vaults(b"old" * 16, 7).sealed(values, place)
    changed = MasterKey(b"new" * 16)
    assert Vaults(changed, 7).opened(vault, place) == {}
    changed.others = (b"old" * 16,)
    assert Vaults(changed, 7).opened(vault, place) == values
    assert Vaults(changed, 8).opened(vault, place) == {}
    assert Vaults(changed, 7).opened(vault, of_item(1, 3)) == {}
