"""Claims about which code may work with which schema: floor ≤ the code's revision ≤ the database's."""

import asyncio
import re
from pathlib import Path

import httpx
import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg import conninfo

from app.cli import supervisor
from app.cli.doctor import database as doctor
from app.cli.doctor.check import CheckStatus
from app.cli.options import console
from app.cli.schema import migrate as migrate_command
from app.db import migrate, schema
from app.db.pool import Database
from app.db.schema import Schema
from app.errors import SchemaMismatch
from app.settings import Settings
from app.user_errors import Failure
from migrations import baseline
from tests import next_revision
from workers.steward.leader import leadership

ROOT = Path(__file__).parents[2]
OWN, BASELINE = schema.own_revision(), baseline.digest()
MADE_BY_OLDER_COMMITS = {  # what a commit from before the first release has left
    "another edition of the baseline": ("update schema_floor set baseline = repeat('0', 64)",),
    "0045, without a baseline": (
        "alter table schema_floor drop column baseline",
        "update alembic_version set version_num = '0045'",
        "update schema_floor set revision = '0045'",
    ),
    "0037, without a floor": ("drop table schema_floor", "update alembic_version set version_num = '0037'"),
    "0001, as it was then": ("drop table schema_floor",),
}
START_ANEW = "made by another commit, .* start anew with another SLACKWATER_DATA_DIR"


def turn(url: str, *, revision: str = OWN, floor: str = OWN) -> None:
    """Set what the database has."""
    with psycopg.connect(url) as conn:
        conn.execute("update alembic_version set version_num = %s", [revision])
        conn.execute("update schema_floor set revision = %s", [floor])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Schema("0050", "0050", BASELINE), None),
        (Schema("0050", "0040", BASELINE), None),
        (Schema("0051", "0040", BASELINE), None),
        (Schema("0051", "0050", BASELINE), None),
        (Schema("0049", "0040", BASELINE), "run `slackwater migrate`"),
        (Schema(), "without a schema"),
        (Schema("0051", "0051", BASELINE), "install a newer version"),
        (Schema("0049", "0040", "another"), "start anew"),
        (Schema("0051", "0051"), "start anew"),
        (Schema("0049"), "start anew"),
    ],
)
def test_code_works_with_its_own_schema_and_newer_ones_that_are_not_closed_to_it(
    found: Schema, problem: str | None
) -> None:
    assert (found.problem("0050") is None) == (problem is None)
    assert problem is None or problem in (found.problem("0050") or "")


def test_revisions_are_in_the_order_of_their_numbers_and_the_last_one_is_that_of_the_code() -> None:
    chain = [each.revision for each in ScriptDirectory.from_config(migrate._config()).walk_revisions()][::-1]
    assert chain == sorted(chain)
    assert chain[-1] == OWN
    assert {len(each) for each in chain} == {4}


async def test_ready_says_yes_beside_a_newer_schema_until_the_floor_rises(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    turn(settings.database_url, revision="9999", floor=OWN)
    assert (await client.get("/ready")).status_code == 200
    turn(settings.database_url, revision="9999", floor="9999")
    closed = await client.get("/ready")
    assert (closed.status_code, "install a newer version" in closed.text) == (503, True)
    turn(settings.database_url, revision="0000", floor="0000")
    behind = await client.get("/ready")
    assert (behind.status_code, "slackwater migrate" in behind.text) == (503, True)


async def test_a_database_without_a_schema_is_behind(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        conn.execute("drop table alembic_version")
    async with database.relaxed() as conn:
        with pytest.raises(SchemaMismatch, match="without a schema"):
            await schema.require(conn)


@pytest.mark.parametrize("made", MADE_BY_OLDER_COMMITS)
async def test_an_installation_of_an_older_commit_is_refused_everywhere_and_left_as_it_is(
    client: httpx.AsyncClient, settings: Settings, made: str
) -> None:
    with psycopg.connect(settings.database_url) as conn:
        for statement in MADE_BY_OLDER_COMMITS[made]:
            conn.execute(statement.encode())
    found = read(settings)
    answer = await client.get("/ready")
    assert (answer.status_code, bool(re.search(START_ANEW, answer.text))) == (503, True)
    with pytest.raises(SchemaMismatch, match=START_ANEW):
        async with leadership(settings.database_url, asyncio.Event()):
            raise AssertionError("it leads")
    server = conninfo.conninfo_to_dict(settings.database_url)
    named = re.escape(f"The database {server['dbname']} at {server['host']} was ")
    with pytest.raises(SchemaMismatch, match=named + START_ANEW):
        await asyncio.to_thread(migrate_command, settings, console)
    with pytest.raises(Failure, match=named + START_ANEW):
        await supervisor._migrate(settings)
    check = doctor.database(settings)
    assert (check.status, check.fix) == (CheckStatus.FAIL, "make a new database")
    assert re.search(START_ANEW, check.detail)
    assert read(settings) == found


async def test_a_steward_leads_only_a_schema_for_its_code_and_steps_down_when_the_floor_rises(
    database_url: str,
) -> None:
    turn(database_url, revision="0000")
    with pytest.raises(SchemaMismatch):
        async with leadership(database_url, asyncio.Event()):
            raise AssertionError("it leads")
    turn(database_url)
    async with leadership(database_url, asyncio.Event()) as lead:
        assert lead is not None
        turn(database_url, revision="9999", floor="9999")
        with pytest.raises(SchemaMismatch):
            await lead.confirm()


def test_older_code_leaves_a_newer_schema_as_it_is_and_refuses_one_that_is_closed_to_it(database_url: str) -> None:
    turn(database_url, revision="9999", floor=OWN)
    migrate.upgrade(database_url)
    assert migrate.revisions(database_url)[0] == "9999"
    turn(database_url, revision="9999", floor="9999")
    with pytest.raises(SchemaMismatch, match="install a newer version"):
        migrate.upgrade(database_url)


def test_contract_raises_the_floor_to_the_revision_of_the_code_and_never_lowers_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    turn(settings.database_url, floor="0000")
    migrate_command(settings, console)
    assert read(settings) == Schema(OWN, "0000", BASELINE)
    migrate_command(settings, console, contract=True)
    assert read(settings) == Schema(OWN, OWN, BASELINE)
    assert f"below revision {OWN}" in capsys.readouterr().out
    turn(settings.database_url, floor="9998")
    assert not schema.contract(settings.database_url)
    assert read(settings).floor == "9998"


def test_a_new_database_is_closed_to_older_code_at_once_and_a_migrated_one_is_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def emptied() -> None:
        with psycopg.connect(settings.database_url) as conn:
            conn.execute("drop schema public cascade")
            conn.execute("create schema public")

    emptied()
    migrate.upgrade(settings.database_url)
    assert read(settings) == Schema(OWN, OWN, BASELINE)
    next_revision.become(monkeypatch, tmp_path_factory.mktemp("versions"))
    migrate.upgrade(settings.database_url)
    assert read(settings) == Schema(next_revision.REVISION, OWN, BASELINE)
    emptied()
    migrate.upgrade(settings.database_url)
    assert read(settings) == Schema(next_revision.REVISION, next_revision.REVISION, BASELINE)


def read(settings: Settings) -> Schema:
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        return schema.read(conn)


IDS_OF_SEVERAL_KINDS = {"key_id", "session_id"}  # of API keys and of sealed turns; of the console and of conversations


async def test_an_id_has_one_type_in_every_table_and_no_statement_makes_it_narrower(database: Database) -> None:
    columns = """
        select a.attname, array_agg(distinct format_type(a.atttypid, a.atttypmod))
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and a.attname like '%\\_id'
        group by 1"""
    async with database.durable() as conn:
        types = dict(await (await conn.execute(columns)).fetchall())
    assert {name: found for name, found in types.items() if len(found) > 1}.keys() <= IDS_OF_SEVERAL_KINDS
    names = {"int8": "bigint", "int4": "integer", "int": "integer", "int2": "smallint"}
    width = {"smallint": 2, "integer": 4, "bigint": 8}
    narrow = []
    for path in (path for folder in ("app", "workers") for path in (ROOT / folder).rglob("*.py")):
        for name, kind in re.findall(r"%\((\w+_id)s?\)s::(\w+)", path.read_text()):
            cast = names.get(kind, kind)
            if name in types and width.get(cast, 8) < max(width.get(each, 0) for each in types[name]):
                narrow.append((path.name, name, cast))
    assert narrow == []
