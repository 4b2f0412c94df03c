"""Claims about printed lists: no text is interpreted as markup, and no password is shown."""

import asyncio
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.cli import demo_output, model, settings_list, tables
from app.cli.data_dir_lock import owned
from app.cli.text import plain
from app.db.pool import Database
from app.engines.catalogue import load
from app.settings import DEMO_MODELS, Settings, masked
from app.user_errors import Failure
from tests.cli.support import TERMINAL, Run

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}


def shown(result: dict[str, object]) -> str:
    """What `show.answers` prints of one response."""
    console = Console(file=io.StringIO(), width=200, record=True)
    items = [{"messages": [{"role": "user", "content": "[b]list[int]"}]}]
    found = {"responses": [{"id": 0, "success": True, "result": result}], "usage": USAGE}
    demo_output.answers(console, items, found, show_all=False)
    return console.export_text()


@pytest.mark.parametrize("content", ["a [/INST] b", "list[int]"])
@pytest.mark.parametrize("shape", ["native", "openai"])
def test_an_answer_is_shown_as_the_model_wrote_it(content: str, shape: str) -> None:
    openai = {"choices": [{"message": {"content": content}}], "usage": USAGE}
    text = shown(openai if shape == "openai" else {"response": content, "usage": USAGE})
    assert content in text
    assert "[b]list[int]" in text


def test_an_answer_without_text_is_empty() -> None:
    assert "1 succeeded" in shown({"choices": [{"message": {"content": None}}], "usage": USAGE})


def test_a_failed_request_is_shown_and_fails_the_demo() -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    response = {"id": 0, "success": False, "error": {"message": "no [/red] tokens"}}
    with pytest.raises(Failure, match="1 of"):
        demo_output.answers(console, [{"prompt": "x"}], {"responses": [response], "usage": USAGE}, show_all=False)
    assert "no [/red] tokens" in console.export_text()


def test_nobodys_text_steers_the_terminal() -> None:
    assert "\x1b" not in plain("\x1b[2Jgone").plain


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hidden@host/db",
        "postgresql://user:hid@hidden@host:5432/db?x=1",
        "postgresql://user@corp:hidden@host/db",
        "postgresql://host/db?user=u&password=hidden",
        "postgresql://host/db?sslpassword=hidden&x=1",
        "amqp://user:hid/hidden@host//",
        "redis://:hidden@host:6379/0",
    ],
)
def test_passwords_are_masked(url: str) -> None:
    assert "hidden" not in masked(url)
    assert "***" in masked(url)
    assert "host" in masked(url)


@pytest.mark.parametrize("value", ["postgresql://postgres@/postgres?host=/tmp/x", "http://gpu:8000", "info"])
def test_what_holds_no_password_is_shown_whole(value: str) -> None:
    assert masked(value) == value


def test_settings_are_listed_without_secrets_and_with_their_brackets(run: Run, settings: Settings) -> None:
    odd = {"SLACKWATER_BROKER_URL": "amqp://u:hidden@h//", "SLACKWATER_DATA_DIR": "/tmp/[/b]x"}
    for options, more in ([], {}), ([], TERMINAL), (["--json"], {}):
        text = run("settings", *options, env=odd | more).output
        assert "hidden" not in text
        assert settings.secret_key.get_secret_value() not in text
        assert "/tmp/[/b]x" in text
    assert "SLACKWATER_DATA_DIR=/tmp/[/b]x" in run("settings", env=odd | TERMINAL).output
    known = {each["variable"]: each["value"] for each in json.loads(run("settings", "--json", env=odd).output)}
    assert known["SLACKWATER_DATA_DIR"] == "/tmp/[/b]x"
    assert known["SLACKWATER_API_KEY"] == "**********"


def test_what_an_attached_engine_says_itself_is_listed_as_not_set() -> None:
    def listed(**values: Any) -> list[str]:
        found = {each["variable"]: each["value"] for each in settings_list.described(Settings(**values))}
        return [found["SLACKWATER_ENGINE_SLOTS"], found["SLACKWATER_ENGINE_MODEL"]]

    assert listed() == ["not set", "smollm2-135m-instruct"]
    assert listed(engine_url="http://x") == ["not set", "not set"]
    assert listed(engine_url="http://x", engine_slots=256, engine_model="m") == ["256", "m"]


def test_models_are_those_of_the_installation_that_runs_here(local: Run, settings: Settings) -> None:
    assert "No installation runs" in local("model", "list").output
    with owned(settings.model_copy(update={"models_file": DEMO_MODELS})):
        found = local("model", "list").output
    assert "@cf/openai/gpt-oss-120b" in found
    assert "No installation" not in found


def test_models_are_listed_with_whether_weights_are_at_hand(run: Run, settings: Settings) -> None:
    def weights() -> str:
        found = json.loads(run("model", "list", "--json").output)
        mine = next(row for row in found if row["name"] == settings.engine_model)
        assert f"{settings.engine_model}\t{mine['served_by']}\t{mine['weights']}\t" in run("model", "list").output
        return str(mine["weights"])

    assert weights() == "not prepared"
    known = load(settings.models_file).models[settings.engine_model]
    folder = Path(known.path(settings.data_dir))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert weights() == "at hand"
    assert model._weights(settings, dataclasses.replace(known, launch=None)) == "elsewhere"


async def test_what_an_attached_engine_brought_is_listed_where_the_database_answers(
    settings: Settings, database: Database
) -> None:
    async with database.durable() as conn:
        await conn.execute("insert into pool (model, context_window, task) values ('org/m', 4096, 'text-generation')")
    found = (await asyncio.to_thread(model.known_models, settings)).resolve("org/m")
    assert found is not None
    assert (found.adopted, found.context_window) == (True, 4096)
    away = settings.model_copy(update={"database_url": "postgresql://u@127.0.0.1:1/x"})
    assert (await asyncio.to_thread(model.known_models, away)).resolve("org/m") is None


def test_names_stay_beside_their_values_which_fold_under_themselves() -> None:
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)
    tables.lines(console, [("✓", "engines", "one engine serves the model"), ("✗", "closed", "it is full")])
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert shown == ["✓  engines  one engine serves", "            the model", "✗  closed   it is full"]
    tables.lines(console, [])


def columns(width: int, *, terminal: bool) -> list[str]:
    """A table with a long cell, as it is printed."""
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, no_color=True, color_system=None)
    rows = [("0123456789" * 2, "word " * 30, ["a\tb", "c\nd"], None)]
    tables.show(console, ("id", "text", "more", "rest"), rows, whole=("id",), wide=("rest",))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in output.splitlines()]


def test_a_pipe_has_a_line_a_row_whatever_the_width() -> None:
    head, row = columns(20, terminal=False)
    assert head == "id\ttext\tmore\trest"
    assert row.split("\t") == ["0123456789" * 2, "word " * 30, "a\N{REPLACEMENT CHARACTER}b,c d"]


@pytest.mark.parametrize("width", [40, 80, 100])
def test_long_cells_fold_and_ids_are_whole(width: int) -> None:
    shown = columns(width, terminal=True)
    assert all(len(line) <= width for line in shown)
    assert shown[1].startswith("0123456789" * 2)
    assert "\n".join(shown).count("word") == 30
    assert ("rest" in shown[0]) == (width == 100)


def test_numbers_are_aligned_right_on_a_terminal_and_as_they_are_in_a_pipe() -> None:
    rows = [("a", "7"), ("b", "1,234")]
    shown = {}
    for terminal in (True, False):
        written = io.StringIO()
        console = Console(file=written, width=100, force_terminal=terminal, no_color=True, color_system=None)
        tables.show(console, ("name", "count"), rows, numbers=("count",))
        shown[terminal] = [line.rstrip() for line in written.getvalue().splitlines()]
    assert shown == {True: ["name  count", "a         7", "b     1,234"], False: ["name\tcount", "a\t7", "b\t1,234"]}
