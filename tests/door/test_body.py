"""Claims about the fields that a caller's body loses at the door, and that nothing else of it changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.door.body import BodyCheck
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

CHECK = BodyCheck(ENGINE_PRIVATE_FIELDS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = (
    st.text() | st.sampled_from(sorted(ENGINE_PRIVATE_FIELDS)) | st.sampled_from(["model", "max_tokens", "Priority"])
)


@pytest.mark.parametrize("name", sorted(ENGINE_PRIVATE_FIELDS))
def test_each_private_field_goes_and_the_rest_stays(name: str) -> None:
    clean = CHECK.clean(json.dumps({"model": "m", name: 1, "max_tokens": 7}).encode())
    assert clean.removed
    assert json.loads(clean.data) == {"model": "m", "max_tokens": 7}
    assert clean.max_tokens == 7


@pytest.mark.parametrize(
    "body",
    [
        b'{"priority":-5,"a":1}',
        b'{"pri\\u006frity":-5,"a":1}',
        b'{"\\u0070riority":-5,"a":1}',
        b'{"priority":1,"priority":-5,"a":1}',
        b'{"a":1,"priority"  :\n -5}',
        b'\xef\xbb\xbf{"priority":-5,"a":1}',
        '{"priority":-5,"a":1}'.encode("utf-16"),
        '{"priority":-5,"a":1}'.encode("utf-16-le"),
        '{"priority":-5,"a":1}'.encode("utf-32"),
        b'{"a":1,"b":NaN,"priority":-5}',
        b'{"a":1,"b":"\\ud800","priority":-5}',
        b'{"a":1,"priority":{"priority":-5}}',
        b' \r\n\t{"a":1,"priority":-5}\n',
    ],
)
def test_no_spelling_brings_a_priority_past_the_parser_of_the_engine(body: bytes) -> None:
    assert json.loads(body)["priority"] is not None
    clean = CHECK.clean(body)
    assert clean.removed
    assert "priority" not in json.loads(clean.data)
    assert json.loads(clean.data)["a"] == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1, 2]",
        b'"priority"',
        b"\x1f\x8b\x08 compressed",
        b'{"messages":[{"role":"user","priority":1,"content":"\\"priority\\": 5"}]}',
        b'{"Priority":1,"PRIORITY":2,"extra_body":{"priority":3}}',
        b'{"prompt":"\xff\xfe"}',
        b'{ "model" : "m",\n"temperature":1.50, "model":"n" }',
    ],
)
def test_what_sets_no_private_field_stays_byte_for_byte(body: bytes) -> None:
    assert CHECK.clean(body) == (body, False, 0)


@pytest.mark.parametrize("depth", range(500, 3000, 50))
def test_a_body_too_deep_for_our_parser_never_reaches_one_that_is_deeper(depth: int) -> None:
    body = b'{"a":NaN,"priority":-5,"b":' + b"[" * depth + b"]" * depth + b"}"
    try:
        found = json.loads(CHECK.clean(body).data)
    except ValueError:
        return
    assert "priority" not in found


@given(st.lists(st.tuples(NAMES, JSON), max_size=6), st.booleans())
def test_the_rest_is_what_the_engine_would_have_read(pairs: list[tuple[str, Any]], ascii_only: bool) -> None:
    text = ",".join(
        f"{json.dumps(k, ensure_ascii=ascii_only)}:{json.dumps(v, ensure_ascii=ascii_only)}" for k, v in pairs
    )
    body = ("{" + text + "}").encode(errors="surrogatepass")
    clean = CHECK.clean(body)
    try:
        given_fields = json.loads(body)
    except ValueError:
        assert clean.data == body
        return
    kept = {name: value for name, value in given_fields.items() if name not in ENGINE_PRIVATE_FIELDS}
    assert repr(json.loads(clean.data)) == repr(kept)
    assert clean.removed is (kept != given_fields and len(kept) != len(given_fields))


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": None}, 0),
        ({"max_tokens": -1}, 0),
        ({"max_tokens": "9"}, 0),
        ({"max_tokens": 10**30}, 0),
    ],
)
def test_the_limit_of_the_answer_is_an_estimate_for_the_worker(body: dict[str, Any], tokens: int) -> None:
    assert CHECK.clean(json.dumps(body).encode()).max_tokens == tokens
