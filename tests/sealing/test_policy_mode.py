"""Claims about encryption that rules of the policy ask for."""

import httpx
import psycopg
import pytest

from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.settings import Settings
from tests.api import in_process
from tests.api.support import SUBMIT, line, uploaded
from tests.api.test_pipelines import URL
from tests.pipelines.test_deletion import planted

RULES = """
[[rule]]
id = "clinic"
when = { account = "acme", task = "letters" }
encrypt = true
"""
LETTERS = {"x-slackwater-task": "letters"}
ITEMS = {"requests": [{"prompt": "hello", "max_tokens": 5}]}


@pytest.fixture(params=["policy", "off"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """The two settings under which the policy has a say."""
    return settings.model_copy(update={"encrypt": request.param})


@pytest.fixture
async def client(client: httpx.AsyncClient, database: Database, settings: Settings) -> httpx.AsyncClient:
    """A client under the rules."""
    async with database.transaction() as conn:
        await policies.apply(conn, RULES, catalogue.load(settings.models_file), "test")
    await in_process.application().state.parts.admission.policy.renew()
    return client


def sealed(database_url: str) -> list[bool]:
    with psycopg.connect(database_url) as conn:
        return [row[0] for row in conn.execute("select get_byte(body, 0) = 1 from item_payload order by batch_id")]


async def test_what_a_rule_names_is_sealed_or_refused_never_stored_in_the_clear(
    client: httpx.AsyncClient, settings: Settings, database_url: str
) -> None:
    assert (await client.post(SUBMIT, json=ITEMS)).status_code == 200
    answer = await client.post(SUBMIT, json=ITEMS, headers=LETTERS)
    if settings.encrypt == "policy":
        assert answer.status_code == 200
        assert sealed(database_url) == [False, True]
    else:
        assert (answer.status_code, "rule clinic" in answer.text) == (503, True)
        assert sealed(database_url) == [False]


async def test_files_of_an_account_that_a_rule_names_are_sealed_or_refused(
    client: httpx.AsyncClient, settings: Settings, database_url: str
) -> None:
    if settings.encrypt == "policy":
        file_id = await uploaded(client, line(1))
        [stored] = (settings.data_dir / "objects").glob("file/*/*")
        assert b"line 1" not in stored.read_bytes()
        assert b"line 1" in (await client.get(f"/v1/files/{file_id}/content")).content
    else:
        sent = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", line(1))})
        assert sent.status_code == 503
        with psycopg.connect(database_url) as conn:
            assert conn.execute("select count(*) from file").fetchone() == (0,)


async def test_a_pipeline_is_a_batch_for_a_rule_and_all_of_its_stages_are_sealed_or_nothing_is_stored(
    client: httpx.AsyncClient, database: Database, settings: Settings, database_url: str
) -> None:
    rules = '[[rule]]\nid = "queued"\nwhen = { kind = ["batch"] }\nencrypt = true\n'
    async with database.transaction() as conn:
        await policies.apply(conn, rules, catalogue.load(settings.models_file), "test")
    await in_process.application().state.parts.admission.policy.renew()
    made = await client.post(URL, json=planted())
    assert made.status_code == (200 if settings.encrypt == "policy" else 503), made.text
    with psycopg.connect(database_url) as conn:
        keys = conn.execute("select count(*) from batch_key where not only_vaults").fetchone()
    assert keys == ((3,) if settings.encrypt == "policy" else (0,))
    assert set(sealed(database_url)) <= {True}
