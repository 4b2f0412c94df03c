"""What comes from outside is read in time linear in its length, whatever it is.

A class or function that reads by blocks or parses, by its name, is measured with hostile inputs, or stands in SHORT with the
reason why its inputs are short. Expressions are found by themselves; a hostile input is made of their parts.
"""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app import host_lists
from app.api.multipart import Form
from app.batches.intake.ndjson import LineSplitter
from app.batches.validation import strict_json
from app.detection.detectors import BUILT_IN_KINDS, Detectors
from app.engines.event_stream import EventSplitter
from app.flows import templates
from app.headroom import engine_metrics
from app.policy import language
from app.policy.placeholders import StreamRestorer
from app.policy.redaction import Redactor, restored_body
from app.policy.rules import Sensitive
from app.sealing.frames import FrameWriter
from app.sessions import transcript
from app.sessions.transcript import PastTurn
from tests.hostile import worst_growth
from tests.linear import LINEAR, Make, Run, growth

ROOT = Path(__file__).parent.parent
NAMES = re.compile(r"(parse|loads)(_\w+)?|feed|add_block")
PLACES = [*(ROOT / "app").rglob("*.py"), *(ROOT / "workers/engine/door").rglob("*.py")]
SOURCES = {path: path.read_text() for path in sorted(PLACES)}
WITH_EXPRESSIONS = [path for path, text in SOURCES.items() if "\nimport re\n" in text]
FORM = b'--B\r\ncontent-disposition: form-data; name="%s"\r\n\r\n'


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def in_blocks(feed: Callable[[], Callable[[Any], object]], size: int) -> Run:
    """Feeds a new parser with blocks of this size."""

    def run(given: Any) -> object:
        parse = feed()
        return [parse(given[at : at + size]) for at in range(0, len(given), size)]

    return run


def or_error(parse: Callable[[Any], object]) -> Run:
    def run(given: Any) -> object:
        try:
            return parse(given)
        except ValueError as error:
            return error

    return run


def form(n: int) -> bytes:
    return FORM % b"file" + b"\r\n--" * n


def turns(n: int) -> list[PastTurn]:
    """Turns of which the last one answers a call of the first one."""
    call, answer = ({"type": kind, "call_id": "a"} for kind in ("function_call", "function_call_output"))
    return [
        PastTurn(place, UUID(int=0), [answer] if place == n else [], [call] if not place else [])
        for place in range(n + 1)
    ]


def repeated(text: Any, after: Any = None) -> Make:
    return lambda n: text * n if after is None else text * n + after


def mixed(alphabet: bytes) -> Make:
    """Text without a period, of which an automaton sees ever new states."""
    return lambda n: bytes(Random(7).choices(alphabet, k=16 * n))


FIND: Run = Detectors(BUILT_IN_KINDS, {}).find
FIND_OWN: Run = Detectors(["a", "b"], {"a": "(?:[0-9][ -]?){14}[A-Z]", "b": "(?:[0-9][ -]?){15}[A-Z]"}).find
REDACT: Run = Redactor(Sensitive("tokenize", {}, {})).redact
RESTORE: Run = lambda given: restored_body(*given, of_answer=True)  # noqa: E731
LOADS = or_error(strict_json.loads)
LINES = in_blocks(lambda: LineSplitter(1 << 40).feed, 100)
PARSERS: dict[str, list[tuple[Run, Make]]] = {
    "app.detection.detectors.Detectors.find": [
        (FIND, repeated(b"4000000000000-")),
        (FIND, repeated(b"aa00aaaaaaaaaaaaaa ")),
        (FIND, repeated(b"AKIA2345678901234567.", b"@b.cc")),
        (FIND, repeated(b"a@b.cc.1.")),
        (FIND, repeated(b"-----BEGIN PRIVATE KEY-----END ")),
        (FIND, repeated(b"eyJabcdefghijk.eyJ")),
        (FIND, mixed(b"0123456789 -.+")),
        (FIND_OWN, mixed(b"0123456789 -")),
    ],
    "app.policy.redaction.Redactor.redact": [
        (REDACT, lambda n: {"prompt": "[EMAIL_1] a@b.cc " * n}),
        (REDACT, lambda n: {"arguments": '["' + '\\"' * n + '"]'}),
        (REDACT, lambda n: {"url": "data:a" + ";base64" * n + ",!"}),
    ],
    "app.policy.redaction.restored_body": [
        (RESTORE, lambda n: (b'"' + b"[EMAIL_1]" * n + b'"', {f"[CARD_{i}]": "" for i in range(n)})),
    ],
    "app.policy.placeholders.StreamRestorer.feed": [
        (in_blocks(lambda: StreamRestorer({}).feed, 1), repeated(" ")),
        (in_blocks(lambda: StreamRestorer({}, in_json=True).feed, 7), repeated('"[A\\')),
    ],
    "app.batches.validation.strict_json.loads": [
        (LOADS, lambda n: b"{" + b"".join(b'"%d":0,' % i for i in range(n)) + b'"n":0,"n":0}'),
        (LOADS, lambda n: b'["' + b'\\" :' * n + b'","\\u0000"]'),
        (LOADS, repeated(b"[")),
        (LOADS, repeated(b'"\\"[')),
        (LOADS, lambda n: b'["' + b"\\ud83d\\ude00" * n + b'\\ud83d"]'),
        (LOADS, lambda n: b"[" * 66 + b"0," * n + b"0" + b"]" * 66),
    ],
    "app.batches.intake.ndjson.LineSplitter.feed": [(LINES, repeated(b"a")), (LINES, repeated(b"\n"))],
    "app.engines.event_stream.EventSplitter.feed": [
        (in_blocks(lambda: EventSplitter().feed, 100), repeated(b"a")),
        (in_blocks(lambda: EventSplitter().feed, 100), repeated(b"data:{}\n")),
    ],
    "app.api.multipart.Form.feed": [
        (in_blocks(lambda: Form("multipart/form-data; boundary=B").feed, 100), form),
        (in_blocks(lambda: Form("multipart/form-data; boundary=B").feed, 65536), form),
    ],
    "app.sealing.frames.FrameWriter.feed": [
        (in_blocks(lambda: FrameWriter(AESGCM(bytes(32)), b"").feed, 100), repeated(b"a")),
    ],
    "app.flows.templates.parse": [
        (or_error(templates.parse), repeated("{{a|9}} {")),
        (or_error(templates.parse), repeated('{{"{{"}}')),
        (or_error(templates.parse), lambda n: "{{a" + ".b" * n + "}}"),
    ],
    "app.headroom.engine_metrics.parse": [
        (or_error(engine_metrics.parse), repeated('vllm:engine_sleep_state{sleep_state="awake"')),
        (or_error(engine_metrics.parse), repeated("vllm:num_requests_running{} 1\n")),
    ],
    "app.policy.language.parse": [
        (
            or_error(lambda text: language.parse(text, {})),
            lambda n: "[[rule]]\n" + "".join(f"a{i} = 1\n" for i in range(n)),
        )
    ],
    "app.host_lists.parse": [(or_error(host_lists.parse), repeated("a-"))],
    "app.sessions.transcript.foldable": [(transcript.foldable, turns)],
}
HEADER, QUERY, OURS = "a header, 32 KiB", "a part of a URL, 16 KiB", "what an operator has set"
OF_LINES, OF_ENGINE = "splits with LineSplitter", "copies the answer of an engine, which its context limits"
SHORT = {
    "app.access.oidc_rules.parse": OURS,
    "app.api.boolean_params.parse": QUERY,
    "app.api.byte_ranges.parse": HEADER,
    "app.api.workers_ai.subscriptions.parse_id": QUERY,
    "app.batches.intake.spool.Spool.add_block": OF_LINES,
    "app.cli.log_lines.parse": OURS,
    "app.console.views.batch_filter.parse": QUERY,
    "app.console.views.conversations.parse": QUERY,
    "app.console.views.pipeline_filter.parse": QUERY,
    "app.engines.continuation.Continuation.feed": OF_ENGINE,
    "app.files.ids.parse_id": QUERY,
    "app.flows.conditions.parse": "LONGEST characters",
    "app.flows.definition.parse": "a value of JSON, walked once",
    "app.flows.definition.parse_then": "a value of JSON, walked once",
    "app.flows.language.parse_path": "reads words as templates do",
    "app.gateway.restored_events.EventRestorer.feed": OF_ENGINE,
    "app.budgets.terms.parse": OURS,
    "app.metering.money.parse_amount": "a number, 40 digits",
    "app.metering.periods.parse": QUERY,
    "app.pipelines.check._FirstLines.add_block": OF_LINES,
    "app.pipelines.ids.parse_id": QUERY,
    "app.policy.tool_call_events.EventWithholder.feed": OF_ENGINE,
    "app.policy.tool_call_events._Choice.feed": OF_ENGINE,
    "app.policy.tool_call_events._Output.feed": OF_ENGINE,
    "app.sessions.service.parse": QUERY,
    "app.tenants.api_key.parse": HEADER,
    "app.tenants.key_list.parse_id": QUERY,
    "app.trace_context.parse": HEADER,
    "app.webhooks.retry_policy.parse_retry_after": HEADER,
}
SHORT_TEXTS = {
    "app.access.oidc_rules:_RULE": OURS,
    "app.batches.validation.grammar:_TOKEN": "REGEX_CHARACTERS",
    "app.batches.validation.not_json:_IN_NUMBER": "_AROUND",
    "app.policy.redaction:_JSON_TEXT": "searched in valid JSON only, where every text is closed",
}


@pytest.mark.parametrize(
    ("run", "make"),
    [pytest.param(*case, id=f"{name} {n}") for name, cases in PARSERS.items() for n, case in enumerate(cases, 1)],
)
def test_a_parser_takes_time_linear_in_its_input(run: Run, make: Make) -> None:
    assert growth(run, make) < LINEAR


def test_every_parser_is_measured_or_says_why_its_input_is_short() -> None:
    found = {name for path in PLACES for name in _parsers(path)}
    measured = {name for name in PARSERS if NAMES.fullmatch(name.rpartition(".")[2])}
    assert found == measured | SHORT.keys()


@pytest.mark.parametrize("path", WITH_EXPRESSIONS, ids=_module)
def test_an_expression_takes_time_linear_in_its_text(path: Path) -> None:
    slow = {
        name: factor
        for name, pattern, anchored in _expressions(path)
        if name not in SHORT_TEXTS and (factor := worst_growth(pattern, anchored=anchored)) > LINEAR
    }
    assert slow == {}


def _parsers(path: Path) -> Iterator[str]:
    """The functions and methods that parse, by their names."""
    for node in ast.parse(SOURCES[path]).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        place = f"{_module(path)}.{node.name}" if isinstance(node, ast.ClassDef) else _module(path)
        for each in inner:
            if isinstance(each, ast.FunctionDef) and NAMES.fullmatch(each.name):
                yield f"{place}.{each.name}"


@cache
def _searching() -> set[str]:
    """The names of expressions that are used otherwise than from the beginning of a text."""
    used = re.compile(r"\b(\w+)\.(?!(?:full)?match\b|pattern\b)")
    return {name for text in SOURCES.values() for name in used.findall(text)}


def _expressions(path: Path) -> Iterator[tuple[str, re.Pattern[Any], bool]]:
    """The expressions of a module, those with a name and those that a call of `re` is given as they are; whether they are only
    matched from the beginning of a text.
    """
    text = SOURCES[path]
    module = importlib.import_module(_module(path))
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern) and re.search(rf"^.*\b{name}\b.* = re\.compile", text, re.MULTILINE):
            yield f"{_module(path)}:{name}", value, name not in _searching()
    for call in ast.walk(ast.parse(text)):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=attr), args=[ast.Constant(str() | bytes() as given), *_]
            ):
                if attr not in ("compile", "escape"):
                    yield f"{_module(path)}:{call.lineno}", re.compile(given), attr.endswith("match")
