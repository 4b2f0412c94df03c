"""Streams of events are restored, wherever a placeholder is cut; the rest of a text comes with the event that ends it."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.restored_events import EventRestorer
from app.gateway.sse_frames import SseEvent
from tests.sets import drawn

VALUES = {"[EMAIL_1]": 'a"b@c.de', "[CARD_12]": "4111 1111 1111 1111"}
TEXT = "to [EMAIL_1], by [CARD_12] [ [X_1] ["
RESTORED = 'to a"b@c.de, by 4111 1111 1111 1111 [ [X_1] ['
CUTS = st.lists(st.integers(0, 60), max_size=8)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted(min(cut, len(text)) for cut in cuts)
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


def fed(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    restorer = EventRestorer(VALUES)
    events = [event for body in bodies for event in restorer.feed(SseEvent(orjson.dumps(body), body))]
    assert all(orjson.loads(event.data) == event.body for event in events)
    return [event.body for event in events]


def chunk(delta: dict[str, Any], index: int = 0, end: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": end}]}


@drawn(20, 200)
@given(CUTS, CUTS)
def test_choices_of_a_chat_are_restored_each_for_itself(first: list[int], second: list[int]) -> None:
    bodies = [chunk({"content": piece}, 0) for piece in pieces(TEXT, first)]
    bodies += [chunk({"content": piece}, 1) for piece in pieces(TEXT, second)]
    bodies += [chunk({}, 0, "stop"), chunk({}, 1, "stop")]
    for index in (0, 1):
        choices = [choice for body in fed(bodies) for choice in body["choices"] if choice["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == RESTORED


@drawn(20, 200)
@given(CUTS)
def test_arguments_of_a_tool_call_stay_json(cuts: list[int]) -> None:
    calls = [{"index": 0, "function": {"arguments": piece}} for piece in pieces('{"to": "[EMAIL_1]"}', cuts)]
    found = fed([chunk({"tool_calls": [call]}) for call in calls])
    texts = [body["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for body in found]
    assert orjson.loads("".join(texts)) == {"to": VALUES["[EMAIL_1]"]}


@drawn(20, 200)
@given(CUTS)
def test_text_of_the_responses_api_is_restored_in_deltas_and_in_the_whole(cuts: list[int]) -> None:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    kind = "response.output_text"
    bodies: list[dict[str, Any]] = [{"type": f"{kind}.delta", "delta": piece, **place} for piece in pieces(TEXT, cuts)]
    bodies.append({"type": f"{kind}.done", "text": TEXT, **place})
    bodies.append({"type": "response.completed", "response": {"output": [{"content": [{"text": TEXT}]}]}})
    *deltas, done, completed = fed(bodies)
    assert "".join(delta["delta"] for delta in deltas) == RESTORED
    assert done["text"] == RESTORED
    assert completed["response"]["output"][0]["content"][0]["text"] == RESTORED


def test_text_completions_are_restored() -> None:
    found = fed(
        [
            {"choices": [{"index": 0, "text": text, "finish_reason": end}]}
            for text, end in (("[EMA", None), ("IL_1]", "stop"))
        ]
    )
    assert "".join(body["choices"][0]["text"] for body in found) == VALUES["[EMAIL_1]"]
