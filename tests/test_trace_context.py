"""Trace context is carried on or left out, never made up."""

import re

import pytest

from app import trace_context

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_call_on_behalf_of_a_trace_keeps_its_id_and_flags_and_names_itself() -> None:
    assert trace_context.parse(GIVEN) == GIVEN
    sent = trace_context.onward(GIVEN)["traceparent"]
    assert re.fullmatch("00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01", sent)
    assert sent != GIVEN


@pytest.mark.parametrize(
    "broken",
    [None, "", "junk", GIVEN.replace("4bf9", "4BF9"), GIVEN.replace("00f067aa0ba902b7", "0" * 16), "01" + GIVEN[2:]],
)
def test_without_a_valid_one_nothing_is_sent(broken: str | None) -> None:
    assert trace_context.parse(broken) is None
    assert trace_context.onward(trace_context.parse(broken)) == {}
