"""docs/worked-month.md: its commands, on the figures of its made-up company, print what the page shows."""

import os
import re
import sys
from pathlib import Path

import pytest

from app.db.pool import Database
from app.engines import catalogue
from app.environment import foreign_environment
from app.settings import Settings
from testing.fakes import ledger_month
from testing.fakes.engine import FakeEngine
from tests.api import in_process
from tests.clock import Clock
from tests.gateway.support import Registry
from tests.walking import Shell, blocks

PAGE = Path(__file__).parents[2] / "docs" / "worked-month.md"
_SHOWN = re.compile(r"```bash\n.*?```\n\n```text\n(.*?)```", re.DOTALL)
_MOMENT = re.compile(r"[A-Z][a-z]{2} \d+ [A-Z][a-z]{2} \d\d:\d\d UTC")

pytestmark = pytest.mark.slow


def words(text: str) -> list[str]:
    """What is said, whatever the width of the screen and the present month."""
    return _MOMENT.sub("MOMENT", text).split()


async def searches(settings: Settings, key: str, clock: Clock) -> int:
    """The status of a call of the search team, once the API has read the budgets."""
    asked = {"model": ledger_month.CHAT, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    async with in_process.running(settings, key) as (_, client):
        await clock.sleep(1.3)
        answer = await client.post("/v1/chat/completions", json=asked, headers={"x-slackwater-workflow": "search"})
    return answer.status_code


async def test_every_command_of_the_worked_month_prints_what_the_page_shows_and_search_never_stops(
    tmp_path: Path, settings: Settings, database: Database, key: str, clock: Clock
) -> None:
    async with database.transaction() as conn:
        await ledger_month.write(conn, catalogue.load(settings.models_file))
    text = PAGE.read_text()
    shown, commands = _SHOWN.findall(text), [block for block in blocks(text) if block.language == "bash"]
    assert len(shown) == len(commands) == 6
    environment = foreign_environment() | {
        "HOME": str(tmp_path),
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(PAGE.parents[1]),
        "SLACKWATER_DATABASE_URL": settings.database_url,
        "SLACKWATER_DATA_DIR": str(settings.data_dir),
        "SLACKWATER_MODELS_FILE": str(settings.models_file),
    }
    with Shell(tmp_path, environment) as shell:
        for block, expected in zip(commands, shown, strict=True):
            assert words(shell.paste(block)) == words(expected), f"line {block.line}"
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        assert await searches(settings, key, clock) == 200
        async with database.durable() as conn:
            await conn.execute("update budget set spent = max where name = 'company'")
        assert await searches(settings, key, clock) == 200
