"""Claims about environment variables that look like settings but are not."""

import io
import os

import pytest
from rich.console import Console

from app.cli import options
from app.environment import child_environment
from app.settings import Settings
from tests.cli.support import own_process


def warned(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """The lines that a command begins with under these variables and no others of ours."""
    console = Console(file=io.StringIO(), width=80, record=True)
    monkeypatch.setattr(options, "errors", console)
    for name in [name for name in os.environ if name.upper().startswith("SLACKWATER_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options.warn_of_variables()
    return console.export_text().splitlines()


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("SLACKWATER_PROT", "SLACKWATER_PORT"),
        ("SLACKWATER_DATABSE_URL", "SLACKWATER_DATABASE_URL"),
        ("SLACKWATER_ITL_BUDGET", "SLACKWATER_ITL_BUDGET_MS"),
        ("slackwater_enginemodel", "SLACKWATER_ENGINE_MODEL"),
        ("SLACKWATER_MODEL", "SLACKWATER_ENGINE_MODEL"),
        ("SLACKWATER_ATTACH", "SLACKWATER_ENGINE_URL"),
        ("SLACKWATER_API_PORT", "SLACKWATER_PORT"),
    ],
)
def test_a_mistyped_variable_is_named_with_the_nearest_real_one(
    monkeypatch: pytest.MonkeyPatch, written: str, near: str
) -> None:
    (line,) = warned(monkeypatch, **{written: "hunter2"})
    assert line.startswith(f"warning {written} (did you mean {near}?) is not a setting")
    assert "hunter2" not in line


def test_several_are_one_line_and_what_resembles_nothing_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = warned(monkeypatch, SLACKWATER_PROT="1", SLACKWATER_XYZZYQQ="1", SLACKWATER_HOST="::1")
    assert "SLACKWATER_PROT (did you mean SLACKWATER_PORT?), SLACKWATER_XYZZYQQ are not settings" in line


def test_real_settings_and_what_others_read_are_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    real = {name: "x" for name in child_environment(Settings(), {}) if name.startswith("SLACKWATER_")}
    others = {"SLACKWATER_URL": "x", "SLACKWATER_API_KEY": "x", "slackwater_port": "1"}
    assert warned(monkeypatch, **real, **others) == []


def test_a_command_says_it_once_and_its_children_do_not(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_PROT", "1")
    broken = settings.model_copy(update={"models_file": settings.data_dir / "nope"})
    answer = own_process(broken, "api")  # the command becomes another program, which ends at once
    assert answer.stderr.count("SLACKWATER_PROT") == 1
    assert answer.stdout == ""
    listed = own_process(settings, "key", "list")
    assert "SLACKWATER_PROT" not in listed.stdout
    assert listed.stderr.count("\n") == 1
