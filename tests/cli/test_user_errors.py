"""Claims about errors that a user can fix: two lines, exit code 1, no traceback. Bugs keep their traceback."""

import errno
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy.exc import DataError, OperationalError

from app import processes
from app import settings as configuration
from app.engines.catalogue import CatalogueError
from app.engines.model_weights import ModelUnavailable
from app.errors import BadInput
from app.settings import Settings
from app.user_errors import Failure, explained, guarded
from tests.cli.support import Run, own_process

REFUSED = """connection failed: connection to server at "db" (10.0.0.1), port 5432 failed: Connection refused
\tIs the server running on that host and accepting TCP/IP connections?"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CatalogueError("models.toml: broken"), "models.toml: broken"),
        (ModelUnavailable("no weights"), "no weights"),
        (BadInput("account: must be"), "account: must be"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/etc"), "/etc cannot be used: is a directory"),
        (psycopg.OperationalError("refused\nhint"), "cannot be reached: refused$"),
        (psycopg.OperationalError(REFUSED), "cannot be reached: db:5432: connection refused$"),
        (psycopg.errors.UndefinedTable("x"), "no schema"),
        (psycopg.ProgrammingError("bad"), "cannot be used: bad"),
        (OperationalError("select", {}, psycopg.OperationalError("refused")), "cannot be reached: refused"),
        (ExceptionGroup("tasks", [ModelUnavailable("no weights")]), "no weights"),
    ],
)
def test_what_the_user_can_mend_is_explained(error: Exception, said: str) -> None:
    with pytest.raises(Failure, match=said), explained():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        TimeoutError(),
        psycopg.errors.NumericValueOutOfRange("integer out of range"),
        DataError("insert", {}, psycopg.DataError("bad")),
        ExceptionGroup("tasks", [KeyError(), BadInput("x")]),
    ],
)
def test_our_own_mistakes_keep_their_traceback(error: Exception) -> None:
    with pytest.raises(type(error)), explained():
        raise error


def test_a_failure_is_shown_as_it_is_written_in_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    long = "https://example.com/" + "x" * 200

    def main() -> None:
        raise Failure(f"no [/x] in {long}", "mend [bold]it")

    with pytest.raises(SystemExit, match="1"):
        guarded(main)
    assert capsys.readouterr().err.splitlines() == [f"error no [/x] in {long}", "      mend [bold]it"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", "abc", "SLACKWATER_PORT: must be a whole number, got 'abc'"),
        ("port", "70000", "SLACKWATER_PORT: must be between 1 and 65535, got '70000'"),
        ("engine_slots", "999999999999", "SLACKWATER_ENGINE_SLOTS: must be between 1 and 32767, got"),
        ("lease_seconds", "inf", "SLACKWATER_LEASE_SECONDS: must be more than 0 and at most 31622400, got 'inf'"),
        ("log_level", "loud", "SLACKWATER_LOG_LEVEL: must be `debug`, `info`, `warning` or `error`, got 'loud'"),
        ("broker_url", "foo://u:hidden@x", "SLACKWATER_BROKER_URL: must be amqp://"),
        ("engine_url", "gpu:8000", "SLACKWATER_ENGINE_URL: must be http://"),
        ("database_url", "mysql://u:hidden@x", "SLACKWATER_DATABASE_URL: must be postgresql://"),
    ],
)
def test_a_wrong_setting_is_named_with_its_variable(name: str, value: str, said: str) -> None:
    with pytest.raises(Failure) as failure, explained():
        Settings(**{name: value})  # type: ignore[arg-type]
    assert failure.value.problem.startswith(said)
    assert "hidden" not in failure.value.problem


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--port", "abc"), "'--port': must be a whole number, not 'abc'"),
        (("up", "--port", "0"), "'--port': must be between 1 and 65535, not '0'"),
        (("top", "--every", "soon"), "'--every': must be a number, not 'soon'"),
    ],
)
def test_a_wrong_option_is_named_with_the_rule_that_it_breaks(
    local: Run, arguments: tuple[str, ...], said: str
) -> None:
    refused = local(*arguments)
    assert refused.exit_code == 2
    assert said in " ".join(refused.output.replace("│", "").split())


def test_every_number_of_the_settings_has_an_upper_bound() -> None:
    numbers = {
        name: field.metadata for name, field in Settings.model_fields.items() if field.annotation in (int, float)
    }
    assert numbers
    assert [name for name, rules in numbers.items() if not any(hasattr(rule, "le") for rule in rules)] == []


def test_settings_of_one_meaning_have_one_spelling() -> None:
    settings = Settings(database_url="postgres://u@h/d", engine_url="http://gpu:8000/", log_level="INFO")
    assert settings.database_url == "postgresql://u@h/d"
    assert settings.engine_url == "http://gpu:8000"


@pytest.mark.parametrize(
    "arguments",
    [
        ("model", "list"),
        ("api",),
        *(
            pytest.param(part, marks=pytest.mark.slow)
            for part in (("gpu-worker",), ("engine",), ("model", "prepare"), ("demo",))
        ),
    ],
)
def test_every_program_says_in_two_lines_that_there_is_no_catalogue(settings: Settings, arguments: tuple[str]) -> None:
    answer = own_process(settings.model_copy(update={"models_file": Path("/nope")}), *arguments)
    assert answer.returncode == 1
    assert "/nope" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_migrate_says_that_there_is_no_database(settings: Settings) -> None:
    answer = own_process(settings.model_copy(update={"database_url": "postgresql://u@127.0.0.1:1/x"}), "migrate")
    assert answer.returncode == 1
    assert "cannot be reached" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("path", "code", "is_named"),
    [
        ("", errno.EACCES, True),
        ("up.lock", errno.EROFS, True),
        ("", errno.EEXIST, True),
        ("..", errno.EACCES, True),
        ("spool/x", errno.ENOSPC, True),
        ("models/gone", errno.ENOENT, False),
        ("../other", errno.EACCES, False),
    ],
)
def test_a_data_directory_that_cannot_be_written_is_named_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, code: int, is_named: bool
) -> None:
    folder = tmp_path / "data"
    monkeypatch.setenv("SLACKWATER_DATA_DIR", str(folder))
    configuration.load.cache_clear()
    with pytest.raises(Failure) as failure, explained():
        raise OSError(code, "the reason", str((folder / path).resolve()))
    configuration.load.cache_clear()
    assert "the reason" in failure.value.problem
    assert (f"The data directory {folder} cannot be written" in failure.value.problem) == is_named
    assert ("SLACKWATER_DATA_DIR" in failure.value.remedy) == is_named


@pytest.mark.parametrize(
    "arguments",
    [
        ("api",),
        pytest.param(("up", "--attach", "http://127.0.0.1:9"), marks=pytest.mark.slow),
        pytest.param(("model", "prepare"), marks=pytest.mark.slow),
    ],
)
def test_every_program_says_which_variable_names_the_directory(settings: Settings, arguments: tuple[str, ...]) -> None:
    file = settings.data_dir / "file"
    file.touch()
    changed = settings.model_copy(update={"data_dir": file, "secret_key": SecretStr(""), "port": processes.free_port()})
    answer = own_process(changed, *arguments)
    assert answer.returncode != 0
    assert f"The data directory {file} cannot be written" in answer.stderr
    assert "SLACKWATER_DATA_DIR" in answer.stderr
    assert "Traceback" not in answer.stderr
