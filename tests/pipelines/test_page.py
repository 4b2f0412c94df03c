"""Claims about docs/pipelines.md: its definitions are valid, and its commands exist."""

import ast
import re
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from app.cli import main
from app.flows.definition import parse, parse_then

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
DEFINITIONS = re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^(slackwater [^#\n]+)", PAGE, re.MULTILINE)
FIELDS = ("after", "when", "otherwise", "each", "max", "pack", "pick", "reask", "escalate", "external", "depends_on")


@pytest.mark.parametrize("text", DEFINITIONS)
def test_its_definitions_are_valid(text: str) -> None:
    given = orjson.loads(text)
    flow = parse(given | {"input": {"items": True}})
    assert [stage.name for stage in flow.stages] == ["class", "class.reask", "class.escalate", "reply"]


def test_what_follows_a_batch_is_valid() -> None:
    [code] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    bodies = [
        each.value for each in ast.walk(ast.parse(code)) if isinstance(each, ast.keyword) and each.arg == "extra_body"
    ]
    assert [stage.name for stage in parse_then(ast.literal_eval(bodies[0])["then"]).stages] == ["title"]


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_have_these_options(command: str) -> None:
    words = command.split()[1:]
    options = [word for word in words if word.startswith("-")]
    shown = CliRunner().invoke(main.app, [*words[:2], "--help"], env={"COLUMNS": "100"}).output
    assert all(option in shown for option in options), shown


def test_every_field_of_a_stage_is_described() -> None:
    assert [field for field in FIELDS if f"`{field}`" not in PAGE] == []
