"""Claims about transcripts and short outputs of tools, for whatever callers, models and tools say."""

import itertools
import uuid
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from app.admission import tool_output
from app.detection.shape import SHAPE
from app.policy.placeholders import restored_text
from app.sessions import transcript
from app.sessions.transcript import PastTurn

TEXT = st.text(max_size=40)
CALL_ID = st.sampled_from(["a", "b", "c"])
GIVEN = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": CALL_ID, "output": TEXT}),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": CALL_ID, "id": st.none() | TEXT}),
)
SAID = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "id": TEXT,
            "content": st.lists(st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXT}), max_size=3),
        }
    ),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": CALL_ID, "id": st.none() | TEXT}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "summary": st.just([])}),
)
LEAF = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=60) | st.dictionaries(TEXT, inner, max_size=5))
PAIRS = st.lists(st.tuples(st.lists(GIVEN, max_size=3), st.lists(SAID, max_size=3)), max_size=8)


def past(pairs: list[Any]) -> list[PastTurn]:
    return [PastTurn(n, uuid.UUID(int=n), *pair, prompt_tokens=n) for n, pair in enumerate(pairs, 1)]


@given(PAIRS)
@settings(deadline=None)
def test_each_turn_only_adds_to_the_prompt_of_the_one_before(pairs: list[Any]) -> None:
    turns = past(pairs)
    prompts = [transcript.rendered(turns[:n]) for n in range(len(turns) + 1)]
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before
    assert not [item for item in prompts[-1] if item.get("type") == "reasoning" or "id" in item]


@given(PAIRS)
@settings(deadline=None)
def test_a_summary_leaves_the_last_turns_whole_and_no_answer_without_its_call_and_replaces_all_others(
    pairs: list[Any],
) -> None:
    turns = past(pairs)
    ends = range(max(0, len(turns) - transcript.WHOLE_TURNS) + 1)
    assert transcript.foldable(turns) == max(end for end in ends if not parted(turns, end))


def parted(turns: list[PastTurn], end: int) -> set[str]:
    """The calls before this turn that are answered from it on."""
    called, answered = (
        {item["call_id"] for turn in part for item in (*turn.given, *turn.answer) if item.get("type") == kind}
        for part, kind in ((turns[:end], "function_call"), (turns[end:], "function_call_output"))
    )
    return called & answered


@given(PAIRS)
@settings(deadline=None)
def test_each_listed_item_can_be_taken_away_by_its_id(pairs: list[Any]) -> None:
    for turn in past(pairs):
        shown = transcript.shown(turn)
        assert len({item["id"] for item in shown}) == len(shown)
        for place, item in enumerate(shown):
            assert transcript.turn_of(item["id"]) == turn.turn_id
            left = transcript.without(turn, place)
            assert transcript.shown(left) == [each for each in shown if each["id"] != item["id"]]


@given(st.lists(TEXT, max_size=4), st.dictionaries(st.sampled_from(["[EMAIL_1]", "[EMAIL_2]", "[CARD_1]"]), TEXT))
@settings(deadline=None)
def test_renamed_placeholders_stand_for_what_they_stood_for(words: list[str], own: dict[str, str]) -> None:
    text = " ".join([*words, *own])
    known = {"[EMAIL_1]": "one@x.example", "[CARD_1]": "4111"}
    renamed, values = transcript.renamed(text, own, known)
    assert known.items() <= values.items()
    if all(SHAPE.search(word) is None for word in words):
        assert restored_text(renamed, values) == restored_text(text, own)


@given(
    st.one_of(JSON.map(lambda value: orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()), st.text(max_size=3000))
)
@settings(deadline=None)
def test_a_shortened_output_is_never_longer_and_always_the_same(text: str) -> None:
    short = tool_output.short_text(text)
    assert len(short) <= len(text)
    assert tool_output.short_text(text) == short


def test_every_cut_says_what_was_left_out() -> None:
    rows = [{"n": n, "none": None} for n in range(1200)]
    short = orjson.loads(tool_output.short_text(orjson.dumps({"rows": rows}, option=orjson.OPT_INDENT_2).decode()))
    assert short["rows"][36] == "[slackwater: 1,155 of 1,200 rows left out]"
    assert (short["rows"][0], short["rows"][-1]) == ({"n": 0}, {"n": 1199})
    log = tool_output.short_text("\n".join(["start", *["again"] * 500, *map(str, range(1000))]))
    assert "again\n[slackwater: 499 repetitions left out]\n0" in log
    assert "[slackwater: 703 of 1,003 lines left out]" in log
    assert tool_output.short_text('{"wei": 115792089237316195423570, "eth": [1.10, 1E5]}') == (
        '{"wei":115792089237316195423570,"eth":[1.10,1E5]}'
    )
    assert tool_output.short_text("x" + "A" * 9000) == "[slackwater: 9,001 characters of base64 left out]"


def test_only_outputs_of_tools_are_shortened_and_only_on_request() -> None:
    long = orjson.dumps(list(range(1000)), option=orjson.OPT_INDENT_2).decode()
    chat = {"messages": [{"role": "user", "content": long}, {"role": "tool", "content": long}]}
    asked = {"input": [{"role": "user", "content": long}, {"type": "function_call_output", "output": long}]}
    for item, name, field in ((chat, "messages", "content"), (asked, "input", "output")):
        assert tool_output.shortened(item) is item
        [user, tool] = tool_output.shortened({**item, tool_output.FLAG: True})[name]
        assert user["content"] == long
        assert len(tool[field]) < 300


def test_the_parts_of_an_output_are_shortened_as_a_text_is() -> None:
    long = orjson.dumps(list(range(1000)), option=orjson.OPT_INDENT_2).decode()
    parts = [{"type": "input_text", "text": long}, {"type": "input_image", "image_url": "https://x.example"}]
    given = [
        {"type": kind, "call_id": "a", "output": parts} for kind in ("function_call_output", "custom_tool_call_output")
    ]
    for item in tool_output.of_items(given):
        assert item["output"] == [{**parts[0], "text": tool_output.short_text(long)}, parts[1]]
    assert tool_output.of_items([{"type": "function_call_output"}]) == [{"type": "function_call_output"}]
