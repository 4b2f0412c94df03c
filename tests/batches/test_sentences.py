"""Whatever is wrong with a line, what is said of it is one sentence with one mark at its end."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import app
from app.admission.admission import no_admission
from app.api.openai.files import view
from app.batches.submit import rules_of
from app.batches.validation.fields import FIELDS, show
from app.batches.validation.openai_lines import BatchLine, LineProblem, Lines
from app.engines import catalogue
from app.files.service import File
from app.sentences import bare, ended
from app.tenants.service import Tenant

MODELS = catalogue.load(Path(app.__file__).with_name("demo_models.toml"))
RULES = {model.name: rules_of(model) for model in MODELS.models.values()}
TENANT = Tenant(1, "acme")
CHAT, MODEL = "/v1/chat/completions", "smollm2-135m-instruct"
TWO_MARKS = re.compile(r"(\.\.|[…!?]\.|\. \.)$")
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
NAMES = sorted({*FIELDS, "model", "messages", "max_tokens", "logit_bias"})
TEXTS = st.sampled_from([".", "...", "null.", "null..", "a" * 56 + ".", "a" * 80, "." * 80, "why?", "…", "a. ."])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def problems(line: Any) -> list[LineProblem]:
    """What is wrong with a line of a batch file."""
    lines = Lines(MODELS, RULES, CHAT, admission=no_admission())
    read = lines.read(orjson.dumps(line))
    assert isinstance(read, BatchLine) == (not lines.all_problems)
    return lines.all_problems


def details(told: list[LineProblem]) -> str | None:
    """What a file's `status_details` says of its lines."""
    found = [{**problem.view(), "alone": problem.alone} for problem in told]
    now = datetime.now(UTC)
    return view(File(uuid4(), "batch", "x.jsonl", 1, now, now, 1, found, {}, None, None, 0), 1, TENANT)[
        "status_details"
    ]


def check(told: list[LineProblem]) -> None:
    """Each message ends in one mark; so does what is said of the first in front of the sentence on what comes of it."""
    for message in [problem.message for problem in told]:
        assert re.search(r"[.…!?]$", message), message
        assert not TWO_MARKS.search(message), message
    if said := details(told):
        first, _ = re.split(" (?=A batch of this file fails, |In a batch of this file only )", said)
        assert not TWO_MARKS.search(first), said


@given(name=st.sampled_from(NAMES), value=JSON)
@example(name="messages", value=None)
@example(name="messages", value=[{"role": "user", "content": [{"type": "text", "text": None}]}])
@example(name="stop", value="a" * 80)
@example(name="temperature", value="." * 80)
def test_what_is_wrong_with_a_body_is_one_sentence(name: str, value: object) -> None:
    check(problems({"custom_id": "1", "method": "POST", "url": CHAT, "body": {**BODY, name: value}}))


@given(name=st.sampled_from(["custom_id", "method", "url", "body"]), value=JSON)
def test_what_is_wrong_with_a_line_is_one_sentence(name: str, value: object) -> None:
    check(problems({"custom_id": "1", "method": "POST", "url": CHAT, "body": BODY, name: value}))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("got null", "got null."),
        ("got null.", "got null."),
        ("got null..", "got null."),
        ("got null. .", "got null."),
        ("got 'aaa…", "got 'aaa…"),
        ("is a notifier running?", "is a notifier running?"),
        ("", ""),
    ],
)
def test_a_text_becomes_a_sentence_with_one_mark(text: str, sentence: str) -> None:
    assert ended(text) == sentence
    assert ended(ended(text)) == sentence
    assert not bare(text).endswith(".")


def test_a_long_value_is_cut_without_a_full_stop() -> None:
    assert show("a" * 80) == "'" + "a" * 58 + "…"
    assert show("a" * 58) == repr("a" * 58)
