"""Claims about sealed pipelines: with their contents, the keys of all stages go."""

import httpx
import pytest

from app.db.pool import Database
from app.settings import Settings
from tests.api.test_pipelines import URL, created
from tests.pipelines.test_deletion import contents, planted
from tests.pipelines.test_served import Played, shown


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"encrypt": "on"})


async def test_with_a_pipeline_the_keys_of_all_of_its_stages_are_destroyed(
    client: httpx.AsyncClient, database: Database, settings: Settings
) -> None:
    made = await created(client, planted())
    assert dict(await contents(database))["batch_key"] == 3
    assert (await client.post(f"{URL}/{made['id']}/cancel")).status_code == 200
    await Played(database, settings).play()
    assert (await client.delete(f"{URL}/{made['id']}")).status_code == 200
    assert await contents(database) == []
    assert (await shown(client, made))["status"] == "cancelled"
