"""Claims about what is printed: nobody's text is taken for markup, and no password is shown."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from app.cli import listing, show
from app.cli.text import plain
from app.engines.catalogue import load
from app.failure import Failure
from app.settings import Settings, masked

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}


def printed(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=400, record=True)
    console.print(renderable)
    return console.export_text()


def shown(result: dict[str, object]) -> str:
    """What `show.answers` prints of one response."""
    console = Console(file=io.StringIO(), width=200, record=True)
    items = [{"messages": [{"role": "user", "content": "[b]list[int]"}]}]
    show.answers(console, items, {"responses": [{"id": 0, "success": True, "result": result}], "usage": USAGE})
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
        show.answers(console, [{"prompt": "x"}], {"responses": [response], "usage": USAGE})
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


def test_settings_are_listed_without_secrets_and_with_their_brackets(settings: Settings) -> None:
    odd = settings.model_copy(update={"broker_url": "amqp://u:hidden@h//", "data_dir": Path("/tmp/[/b]x")})
    text = printed(listing.settings_table(odd))
    assert "hidden" not in text
    assert settings.secret_key.get_secret_value() not in text
    assert "/tmp/[/b]x" in text


def test_models_are_listed_with_whether_weights_are_at_hand(settings: Settings) -> None:
    def line() -> str:
        rows = printed(listing.models_table(settings)).splitlines()
        return next(row for row in rows if row.split()[1:2] == [settings.engine_model])

    assert "not prepared" in line()
    model = load(settings.models_file).models[settings.engine_model]
    folder = Path(model.path(settings.data_dir))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert "at hand" in line()
    assert listing._weights(settings, dataclasses.replace(model, launch=None)) == "elsewhere"
