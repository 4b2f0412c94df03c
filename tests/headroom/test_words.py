"""The sentences of reasons, signals and times."""

import pytest

from app.headroom import words
from app.headroom.controller import Reason
from app.states import BatchState, EngineState
from workers.gpu.health import DOWN, MISSING


def test_every_reason_and_fault_has_a_sentence_of_its_own() -> None:
    codes = {*map(str, Reason), DOWN, MISSING, f"engine_{EngineState.STARTING}", "released"}
    assert codes - words.CODES == set()


def test_every_state_that_holds_a_batch_up_has_a_sentence() -> None:
    for state in (BatchState.PAUSED, BatchState.CANCELLING, BatchState.EXPIRING):
        assert words.batch(state).startswith("the batch ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("shrink_latency", "step_seconds", 0.031, 0.025, 40),
            "e serves synchronous requests: step time 31 ms, limit 25 ms, for 40 s",
        ),
        (
            ("closed_stale", "age_seconds", 12.0, 1.5, 10.4),
            "e sends no fresh telemetry: last seen 12 s ago, limit 1.5 s, for 10 s",
        ),
        (("closed_slots", "load", 62.0, 62.0, 90), "e is full: 62 of 62 usable slots taken, for 90 s"),
        (("closed_kv", "kv_usage", 0.914, 0.85, None), "e has no memory left for batch work: KV cache 91% used, limit 85%"),
        (("closed_sync_waiting", "sync_waiting", 3.0, 1.0, 0.2), "e serves synchronous requests first: 3 waiting, for 200 ms"),
        (("closed_unknown", "telemetry", 0.0, 1.0, 3), "e sends no telemetry that can be read for 3 s"),
        (("engine_down", None, None, None, 3600 * 5), "e does not answer for 5 h"),
        (("brand_new", "queue_tokens", 1234.0, 1.0, 1), "e reports brand new: queue 1,234 tokens, limit 1 token, for 1 s"),
        (("brand_new", "odd", 0.5, None, None), "e reports brand new: odd 0.50"),
    ],
)  # fmt: skip
def test_a_gate_says_what_it_does_and_why_with_units(
    given: tuple[str, str | None, float | None, float | None, float | None], said: str
) -> None:
    assert words.gate("e", *given) == said


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0314, "31 ms"),
        (0.9994, "999 ms"),
        (1.0, "1 s"),
        (1.5, "1.5 s"),
        (40.4, "40 s"),
        (119, "119 s"),
        (720, "12 min"),
        (7200, "2 h"),
        (259_200, "3 days"),
        (-3, "0 ms"),
        (0, "0 ms"),
    ],
)
def test_a_time_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    assert words.duration(seconds) == shown


def test_one_thing_is_not_many() -> None:
    assert (words.many(1, "chunk"), words.many(0, "chunk"), words.many(2000, "token")) == (
        "1 chunk",
        "0 chunks",
        "2,000 tokens",
    )
