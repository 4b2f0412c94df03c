"""Claims about `slackwater pipeline …` and `slackwater why pipe_…`: over HTTP alone, on a terminal and in a pipe."""

import asyncio
import json
from pathlib import Path

import pytest

from app.db.pool import Database
from app.settings import Settings
from tests.api.test_pipelines import stage
from tests.cli.support import TERMINAL, Run
from tests.pipelines.test_served import Played

CSV = "custom_id,text\na,about a\nb,bad\nc,about c\n"


@pytest.fixture
def definition(tmp_path: Path) -> str:
    given = {
        "name": "facts",
        "stages": [stage("facts", "A fact.\n{{item.text}}"), stage("title", "A title.\n{{text}}")],
    }
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(given))
    (tmp_path / "tickets.csv").write_text(CSV)
    return str(path)


def play(settings: Settings) -> None:
    """What feeder, worker and steward do with all that waits. An item with the word bad fails."""

    async def call() -> None:
        async with Database.of(settings, "test") as database:
            await Played(database, settings, lambda body: None if "bad" in str(body) else "fine").play()

    asyncio.run(call())


def test_a_pipeline_is_checked_submitted_watched_and_read(
    run: Run, api: Settings, definition: str, tmp_path: Path
) -> None:
    tickets = str(tmp_path / "tickets.csv")
    checked = run("pipeline", "check", definition, "--input", tickets)
    assert '"content": "A fact.\\nabout a"' in checked.output
    assert "in all\t\t6\t" in checked.output
    made = run("pipeline", "submit", definition, "--input", tickets).output.strip()
    assert made.startswith("pipe_")
    assert f"{made}\tfacts\tin progress\t0/0\t0\t" in run("pipeline", "list").output
    shown = run("why", made).output.splitlines()
    assert shown[0] == "The pipeline is in progress."
    assert "dependency" in shown[-1]
    assert "waits for results of facts" in shown[-1]
    for verb, word in (("pause", "is paused"), ("resume", "continues")):
        assert f"{made} {word}" in run("pipeline", verb, made[:14]).output
    play(api)
    watched = run("pipeline", "watch", made)
    assert watched.exit_code == 0, watched.output
    assert "state     completed" in watched.output
    assert "facts\tsmollm2-135m-instruct\t3/3\t1\t" in watched.output
    results = [json.loads(line) for line in run("pipeline", "results", made).output.splitlines()]
    assert [each["custom_id"] for each in results] == ["a", "c"]
    lineage = run("pipeline", "item", made, "b").output
    assert "✗ failed\tfacts\t1\t" in lineage
    assert "– dropped\ttitle\t" in lineage
    assert run("why", made, "b").output == lineage


def test_a_check_says_which_line_is_dropped_and_shows_every_error_of_the_sample(
    run: Run, definition: str, tmp_path: Path
) -> None:
    asked = stage("notes", "{{item.note}}", when='item.custom_id != "a"')
    Path(definition).write_text(json.dumps({"stages": [asked, stage("title", "A title.\n{{text}}")]}))
    shown = run("pipeline", "check", definition, "-i", str(tmp_path / "tickets.csv")).output
    parts = shown.split("\n\n")
    assert parts[0] == "notes, line a\nDropped: its condition does not hold, or its list is empty."
    assert [part.splitlines()[0] for part in parts[1:4]] == ["notes, line b", "notes, line c", "title, line a"]
    assert all('"reason": "missing_value"' in part for part in parts[1:3])


def test_a_terminal_shows_the_stages_with_bars(run: Run, api: Settings, definition: str, tmp_path: Path) -> None:
    made = run("pipeline", "submit", definition, "-i", str(tmp_path / "tickets.csv")).output.strip()
    play(api)
    shown = run("pipeline", "show", made, env=TERMINAL).output
    assert "━" * 16 in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_what_is_wrong_with_a_definition_is_said_with_its_place(run: Run, definition: str, tmp_path: Path) -> None:
    path = Path(definition)
    path.write_text(path.read_text().replace("{{text}}", "{{txt}}"))
    refused = run("pipeline", "submit", definition, "-i", str(tmp_path / "tickets.csv"))
    assert refused.exit_code == 1
    assert "stages[1].body.messages[0].content of stage 'title' cannot be read at column" in refused.output
    path.write_text("{")
    assert "not valid JSON" in run("pipeline", "check", definition).output
    path.write_bytes(b'{\n"name": "\xff"}')
    assert (
        "not valid JSON: the byte 0xff at line 2 column 10 is not UTF-8; "
        in run("pipeline", "check", definition).output
    )
    path.write_text('{"stages": []}')
    assert "--input" in run("pipeline", "check", definition).output
    assert "must be ASCII" in run("pipeline", "submit", definition, "--idempotency-key", "ä").output
