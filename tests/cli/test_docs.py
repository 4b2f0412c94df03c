"""docs/cli.md and `--help` name the same commands."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from click import Command
from typer.testing import CliRunner

from app.cli import main
from app.cli.main import CommandLine

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
ROW = re.compile(r"^\| `slackwater ([a-z -]+)` \| (.+) \| `slackwater (.+)` \|$", re.MULTILINE)


LISTED = {late.name: late.summary for late in CommandLine.late}
IMPORTED = {late.name: late.imported() for late in CommandLine.late}


def commands(parent: Command, *path: str) -> Iterator[tuple[str, Command]]:
    """Every command that does something, with its words."""
    children: dict[str, Command] = IMPORTED if isinstance(parent, CommandLine) else getattr(parent, "commands", {})
    for name, child in children.items():
        if not child.hidden:
            yield from commands(child, *path, name)
    if not children or getattr(parent, "invoke_without_command", False):
        yield " ".join(path), parent


COMMANDS = {words: command for words, command in commands(typer.main.get_command(main.app)) if words}


def test_every_command_has_one_row_with_an_example_of_it() -> None:
    rows = ROW.findall(PAGE)
    assert sorted(words for words, _, _ in rows) == sorted(COMMANDS)
    for words, _, example in rows:
        assert example.startswith(words)
        given = {part for part in example.split() if part.startswith("--")}
        assert given <= {name for parameter in COMMANDS[words].params for name in parameter.opts}, example


def test_every_command_that_prints_json_is_documented() -> None:
    table = PAGE.partition("| command with `--json` |")[2]
    documented = table.partition("\n\n")[0]
    for words, command in COMMANDS.items():
        if any("--json" in parameter.opts for parameter in command.params):
            group, _, verb = words.rpartition(" ")
            lines = [line for line in documented.splitlines() if line.startswith(f"| `{group or verb}")]
            assert any(f"`{words}`" in line or f"`{verb}`" in line for line in lines), words


def test_help_explains_every_command_at_80_columns() -> None:
    for words, command in COMMANDS.items():
        shown = CliRunner().invoke(main.app, [*words.split(), "--help"], env={"COLUMNS": "80"})
        assert shown.exit_code == 0, words
        assert max(map(len, shown.output.splitlines())) <= 80, words
        assert (command.help or "").split()[0] in shown.output, words


def test_the_list_of_commands_begins_with_what_callers_use() -> None:
    shown = CliRunner().invoke(main.app, ["--help"], env={"COLUMNS": "80"}).output
    places = [
        shown.index(f" {word} ") for word in ("Use", "submit", "status", "Run", "up", "demo", "Administer", "account")
    ]
    assert places == sorted(places)
    assert "Commands" not in shown


def test_the_list_of_commands_shows_the_first_paragraph_of_each_commands_own_help() -> None:
    for name, summary in LISTED.items():
        first = (IMPORTED[name].help or "").strip().partition("\n\n")[0]
        assert summary == " ".join(first.split()), name
        assert IMPORTED[name].name == name
