"""What must not be in a log."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app import log_filter, telemetry, trace_context
from app.detection import detectors
from app.settings import Settings
from workers.celery_shell import worker as celery_worker


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_local_variables(form: str) -> None:
    """They hold keys, prompts and answers."""
    out = io.StringIO()
    telemetry.configure(Settings(log_format=form), "test", out)
    prompt = "".join(["whispered", "-", "secret"])
    try:
        raise RuntimeError(f"{len(prompt)} characters")
    except RuntimeError:
        structlog.get_logger().exception("request.failed")
    assert f"{len(prompt)} characters" in out.getvalue()
    assert prompt not in out.getvalue()


async def test_a_line_names_the_trace_of_the_work_it_is_about() -> None:
    out, header = io.StringIO(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    telemetry.configure(Settings(log_format="json"), "test", out)

    async def work(traceparent: str | None) -> None:
        trace_context.enter(traceparent)
        await asyncio.sleep(0)
        structlog.get_logger().info("did.it")

    await asyncio.gather(work(header), work(None))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line.get("trace_id") for line in lines] == [header[3:35], None]


MAIL, KEY, CARD = "planted.person@hidden.example", "sk-plantedplantedplanted0123456789", "4111 1111 1111 1111"
SENTENCE = "a planted sentence of a prompt"


class Body(BaseModel):
    """What a request may look like."""

    tokens: int


def of_pydantic() -> None:
    Body.model_validate({"tokens": SENTENCE})


def of_a_number() -> None:
    int(SENTENCE)


def of_a_name() -> None:
    {"messages": 1}[SENTENCE]


def of_a_row() -> None:
    raise psycopg.errors.CheckViolation(
        f'new row violates check constraint "most"\nDETAIL:  Failing row contains (1, {SENTENCE}, \\x01).\nCONTEXT:  {SENTENCE}'
    )


def of_a_value() -> None:
    raise psycopg.errors.InvalidTextRepresentation(f'invalid input syntax for type uuid: "{SENTENCE}"')


def of_a_secret() -> None:
    raise RuntimeError(f"no engine for {MAIL} with {KEY} and {CARD}")


def of_a_header() -> None:
    raise RuntimeError(f"cannot send [(b'authorization', b'Basic {SENTENCE}'), (b'cookie', b'{SENTENCE}')]")


def of_a_cause() -> None:
    try:
        of_a_number()
    except ValueError as error:
        raise ExceptionGroup("several", [RuntimeError(KEY), error]) from error


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("through", ["structlog", "logging"])
@pytest.mark.parametrize(
    "fails",
    [of_pydantic, of_a_number, of_a_name, of_a_row, of_a_value, of_a_secret, of_a_header, of_a_cause],
    ids=lambda each: each.__name__,
)
def test_the_text_of_an_error_brings_no_data_into_a_log(form: str, through: str, fails: Callable[[], None]) -> None:
    out = io.StringIO()
    telemetry.configure(Settings(log_format=form), "test", out)
    try:
        fails()
    except Exception as error:
        if through == "structlog":
            structlog.get_logger().exception("request.failed", path="/v1/files")
        else:
            logging.getLogger("some.library").exception("failed")
        structlog.get_logger().warning("engine.away", error=str(error) if fails is of_a_secret else error)
    assert "planted" not in out.getvalue()
    assert CARD not in out.getvalue()
    assert f"in {fails.__name__}" in out.getvalue(), "the place of the error is shown"


@pytest.mark.parametrize("form", ["console", "json"])
def test_access_lines_show_neither_queries_nor_headers_that_authenticate(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    # A server that writes no access lines, as other tests start in this process, takes the logger out of the tree.
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)
    telemetry.configure(Settings(log_format=form), "test", out)
    logging.getLogger("uvicorn.access").warning(
        '%s - "%s %s HTTP/%s" %d', "::1", "GET", "/v1/files?after=planted", "1.1", 200
    )
    logging.getLogger("aiohttp.access").warning(
        '"GET https://planted:planted@host.example/a?key=planted&b=planted" 500'
    )
    log = structlog.get_logger()
    log.warning("sent", headers={"Authorization": "planted", "host": "shown.example", "Cookie": "a=planted"})
    log.warning(
        "sent", url="http://host.example/hook?token=planted", note="authorization: Bearer planted, x-api-key: planted"
    )
    log.warning("sent", values=[{"deep": MAIL}], size=4111111111111111, file="/var/lib/a.log")
    assert "planted" not in out.getvalue()
    for kept in ("/v1/files?", "host.example/a?", "shown.example", "[EMAIL]", "4111111111111111", "/var/lib/a.log"):
        assert kept in out.getvalue()


def test_messages_that_name_no_data_stay_whole() -> None:
    for message in (
        'connection failed: connection to server on socket "/tmp/x/.s.PGSQL.5432" failed: No such file or directory',
        "Vault answered 503 to encrypt/slackwater-1: sealed",
        "0f2ac1de-4111-4111-8111-111111111111",
        "Engine 127.0.0.1:8000 does not answer since 2026-11-23T18:00:39.123456Z",
    ):
        assert log_filter.text(message) == message
        assert log_filter.message_of(RuntimeError(message)) == message
    assert log_filter.message_of(KeyError("messages")) == "'messages'"
    assert log_filter.message_of(TypeError("f() can't take 'n' and it's \"x y\"")) == "f() can't take 'n' and it's …"


def test_without_re2_a_log_is_searched_with_pythons_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectors, "re2", None)
    assert detectors.built_in().scrubbed(f"{MAIL} {KEY} {CARD}") == "[EMAIL] [SECRET] [CARD]"


@given(st.recursive(st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)), st.text(), st.text())
def test_no_value_hides_a_planted_key_from_the_filter(value: object, before: str, after: str) -> None:
    for place in (f"{before} {KEY} {after}", {"a": [value, f"{before} {KEY}"]}, ValueError(f"{before} {KEY}")):
        assert KEY not in str(log_filter.passed(place))


@pytest.mark.parametrize("place", ["main", "thread", "destructor"])
def test_an_error_that_nobody_catches_is_filtered_too(place: str) -> None:
    raising = f"raise ValueError('planted ' 'words of {MAIL}', {KEY!r})"
    program = {
        "main": raising,
        "thread": f"import threading\ndef run(): {raising}\nthreading.Thread(target=run).start()",
        "destructor": f"class Held:\n    def __del__(self): {raising}\nHeld()",
    }[place]
    begin = "from app import telemetry; from app.settings import Settings; telemetry.configure(Settings(), 'test')\n"
    ended = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, check=False)
    assert ended.returncode == (1 if place == "main" else 0)
    assert "ValueError: " in ended.stderr
    assert "planted" not in ended.stderr


def test_the_attempts_of_a_pool_to_connect_are_not_logged_by_a_celery_worker() -> None:
    celery_worker._keep_logging()
    assert logging.getLogger("psycopg.pool").getEffectiveLevel() == logging.ERROR
