"""Claims about the events of a background response that may be sent to who follows it. Pure."""

from typing import Any

from app.batches.openai import background_responses

Events = list[tuple[int, dict[str, Any]]]
BEGUN: Events = [(0, {"type": "response.created"}), (1, {"type": "response.output_text.delta", "delta": "a"})]
END = {"type": "response.completed"}


def test_the_last_event_waits_until_the_response_has_its_status() -> None:
    events: Events = [*BEGUN, (2, END)]
    assert background_responses._sendable(events, final=False) == BEGUN
    assert background_responses._sendable(events, final=True) == events


def test_the_end_of_an_answer_that_was_lost_is_none() -> None:
    again: Events = [*BEGUN, (2, END), (3, {"type": "response.created"})]
    for final in (False, True):
        assert [number for number, _ in background_responses._sendable(again, final=final)] == [0, 1, 3]
