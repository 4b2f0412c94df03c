"""The sentences of `slackwater why`: reasons, signals, times and counts."""

import ast
import inspect
import textwrap

import pytest

from app.batches import why_text
from app.batches.why_text import batch_message
from app.engines.adoption import DOWN, FOREIGN, KEY, MISSING, TOO_SMALL, UNTOLD
from app.headroom import controller
from app.headroom.gate_rules import Reason
from app.quantities import duration, many
from app.states import BatchState, EngineState
from workers.gpu import harvest_control
from workers.gpu.control_loop import ControlLoop


def test_every_reason_and_fault_has_a_sentence_of_its_own() -> None:
    codes = {
        *map(str, Reason),
        DOWN,
        FOREIGN,
        KEY,
        MISSING,
        TOO_SMALL,
        UNTOLD,
        f"engine_{EngineState.STARTING}",
        "released",
    }
    assert codes - why_text.GATE_CODES == set()


def emitted(rules: object) -> set[str]:
    """The signals in the source of a module or function: its strings that are neither prose nor the values of reasons."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(rules)))  # type: ignore[arg-type]
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in strings if text.isidentifier()} - {*map(str, Reason), "tripped"}


def test_every_signal_that_a_decision_names_has_words_of_its_own() -> None:
    known = emitted(controller) | emitted(harvest_control.residents) | emitted(harvest_control.HarvestControl.decide)
    known |= emitted(harvest_control.HarvestControl._after_fault)
    assert {"unknown_steps", "static_cap", "still_seconds", "model_error", "faults"} <= known
    assert (known | {"controller", "window_tokens"}) - why_text._SIGNALS.keys() == set()
    assert emitted(ControlLoop._tick) - {"headroom", "broken", "l1"} == {"controller"}


def test_every_state_that_holds_a_batch_up_has_a_sentence() -> None:
    for state in (BatchState.PAUSED, BatchState.CANCELLING, BatchState.EXPIRING):
        assert batch_message(state).startswith("the batch ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("shrink_latency", "step_seconds", 0.031, 0.025, 40),
            "e keeps its steps short: step time 31 ms, the aim is at most 25 ms, for 40 s",
        ),
        (
            ("closed_stale", "age_seconds", 12.0, 1.5, 10.4),
            "e sends no fresh telemetry: last seen 12 s ago, limit 1.5 s",
        ),
        (("harvest", "quiet_seconds", 83.0, 13.0, 9000),
            "e gives batch work what synchronous requests leave of every step: no caller for 83 s"),
        (("hold", "hold_seconds", 0.4, 0.0, 0.6), "e keeps its amount of batch work for now: 400 ms left"),
        (("open", "quiet_seconds", 240.0, 0.0, None), "e takes batch work: no caller for 4 min"),
        (("open", "step_seconds", 0.0, 0.0, 3), "e takes batch work, for 3 s"),
        (("closed_slots", "load", 62.0, 62.0, 90), "e is full: 62 requests in it, 62 usable slots, for 90 s"),
        (("full", "load", 16.0, 16.0, 9), "e has as much work as fits: 16 requests in it, 16 usable slots, for 9 s"),
        (("closed_kv", "kv_usage", 0.914, 0.85, None), "e has no memory left for batch work: KV cache 91% used, limit 85%"),
        (("closed_sync_waiting", "sync_waiting", 3.0, 1.0, 0.2), "e serves synchronous requests first: 3 waiting, for 200 ms"),
        (("hold", "unknown_steps", 0.0, 1.0, 2),
            "e keeps its amount of batch work for now: steps beside synchronous requests are not measured yet, for 2 s"),
        (("closed_model_error", "model_error", 0.4, 0.25, 2),
            "e has step times that do not fit their predictions: the predictions are off by 40%, limit 25%, for 2 s"),
        (("closed_learning", "model_samples", 5, 32, 2),
            "e is still learning how long its steps take: 5 of 32 steps seen, for 2 s"),
        (("closed_unknown", "telemetry", 0.0, 1.0, 3), "e sends no telemetry that can be read, for 3 s"),
        (("engine_down", None, None, None, 3600 * 5), "e does not answer, for 5 h"),
        (("brand_new", "queue_tokens", 1234.0, 1.0, 1), "e reports brand new: queue 1,234 tokens, limit 1 token, for 1 s"),
        (("brand_new", "odd", 0.5, None, None), "e reports brand new: odd 0.50"),
    ],
)  # fmt: skip
def test_a_gate_says_what_it_does_and_why_with_units_and_one_time_for_how_long(
    given: tuple[str, str | None, float | None, float | None, float | None], said: str
) -> None:
    assert why_text.gate("e", *given) == said


def test_a_gate_says_what_is_wrong_and_when_its_engine_is_expected() -> None:
    lacks = "/metrics has no vllm:kv_cache_usage_perc"
    unread = why_text.gate("e", "closed_unknown", "telemetry", 0, 1, 3, detail=lacks)
    assert unread == f"e sends no telemetry that can be read, for 3 s: {lacks}"
    away = why_text.gate("e", "engine_down", None, None, None, 4, expected=31.4)
    assert away == "e does not answer, for 4 s, back in about 31 s if it takes as long as lately"
    still = why_text.gate("e", "closed_stale", "still_seconds", 7, 6, None)
    assert still == "e sends no fresh telemetry: the engine's counters have not changed for 7 s, limit 6 s"


KILLED = "it was killed (SIGKILL)"


@pytest.mark.parametrize(
    ("code", "detail", "seconds", "expected", "said"),
    [
        ("engine_down", KILLED, 8, 74, f"e does not answer, for 8 s: {KILLED}, back in about 74 s if it takes as long as lately"),
        ("engine_starting", KILLED, 8, 74, f"e does not answer, for 8 s: {KILLED}, and is started again, "
            "back in about 74 s if it takes as long as lately"),
        ("engine_starting", None, 8, 74, "e is starting, for 8 s, back in about 74 s if it takes as long as lately"),
        ("engine_down", None, 81.8, 0.2, "e does not answer, for 82 s, back at any moment if it takes as long as lately"),
        ("engine_down", None, 95, 13, "e does not answer, for 95 s, longer than the 82 s that it took lately"),
        ("engine_down", KILLED, 180, 98, f"e does not answer, for 3 min, longer than the 82 s that it took lately: {KILLED}"),
    ],
)  # fmt: skip
def test_an_engine_that_is_away_says_how_it_ended_and_one_that_is_late_no_time_of_its_return(
    code: str, detail: str | None, seconds: float, expected: float, said: str
) -> None:
    given = (None, None, None, seconds)
    assert why_text.gate("e", code, *given, detail=detail, expected=expected, usual=82) == said


def test_every_decision_says_why_and_names_what_it_speaks_of() -> None:
    assert why_text.decided("harvest", "telemetry", 0, 1, None).startswith("it gives batch work what")
    assert why_text.decided("open", "step_seconds", 0, 0, None) == "it takes batch work"
    assert why_text.decided("hold", "model_error", 0.41, 0.3, None) == "the predictions are off by 41%, limit 30%"
    near = why_text.decided("closed_model_error", "model_error", 0.3042, 0.3, None)
    assert near == "the predictions are off by 30.4%, limit 30%"
    for words in why_text._SIGNALS.values():
        assert not {"they", "their", "its"} & set(words.split()), words


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
    assert duration(seconds) == shown


def test_one_thing_is_not_many() -> None:
    assert (many(1, "chunk"), many(0, "chunk"), many(2000, "token")) == ("1 chunk", "0 chunks", "2,000 tokens")
