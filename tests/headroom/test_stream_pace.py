"""Step times and late first tokens, seen from our own streams."""

from app.headroom.arrivals import Arrivals
from app.headroom.controller import State, decide
from app.headroom.engine_metrics import EngineGauges
from app.headroom.gate_rules import BLIND_CAP, HeadroomLimits, Reason
from app.headroom.selftest import prove
from app.headroom.signals import BatchLoad, Scrape, Signals
from app.headroom.step_meter import StepMeter
from app.headroom.stream_pace import FirstTokens, FirstTokenWait, StreamPace, StreamState
from tests.headroom.support import LISTENING, SHIPPED, WIDE, look

BLIND = HeadroomLimits.of(SHIPPED, 256, blind=True, slots_known=False)
TICK = 0.1


def streams(tokens: int, count: int = 4) -> dict[int, StreamState]:
    return {key: StreamState(0.0, tokens) for key in range(count)}


def test_the_pace_is_the_mean_time_between_two_tokens_of_a_stream() -> None:
    pace = StreamPace()
    assert pace.observe(1.0, streams(1)) is None
    assert pace.observe(1.1, streams(3)) is None
    found = pace.observe(1.25, streams(6))
    assert found is not None
    assert (found.streams, round(found.elapsed, 3), round(found.seconds, 3)) == (4, 0.25, 0.05)


def test_a_stream_counts_from_its_first_token_on() -> None:
    pace = StreamPace()
    pace.observe(1.0, {"a": StreamState(0.0, 0), "b": StreamState(0.0, 1)})
    found = pace.observe(1.25, {"a": StreamState(0.0, 1), "b": StreamState(0.0, 6)})
    assert found is not None
    assert (found.streams, round(found.seconds, 3)) == (2, 0.05)


def test_streams_that_stand_still_are_waited_for_and_then_slow() -> None:
    pace = StreamPace()
    pace.observe(0.0, streams(1))
    assert pace.observe(1.0, streams(1)) is None
    found = pace.observe(4.5, streams(1))
    assert found is not None
    assert found.seconds >= 4.5


def test_a_first_token_is_late_beyond_a_second_and_four_times_the_usual() -> None:
    first = FirstTokens()
    assert not first.observe(0.9, {"a": StreamState(0.0, 0)}).late
    assert first.observe(1.1, {"a": StreamState(0.0, 0)}).late
    assert first.observe(2.0, {"a": StreamState(0.0, 1)}) == FirstTokenWait(0.0, 8.0)
    assert first.observe(9.0, {"b": StreamState(2.0, 0)}).seconds == 7.0


def test_the_wait_of_synchronous_requests_counts_as_well() -> None:
    assert FirstTokens().observe(5.0, {}, others=3.0).late


def test_what_gateways_measure_is_known_for_two_seconds() -> None:
    arrivals = Arrivals(60)
    arrivals.arrived("a", 10, 10, 1.0)
    arrivals.first_token("a", 1.5, ttft_ms=500)
    arrivals.finished("a", 2.0, itl_p50_ms=40)
    recent = arrivals.recent(2.1)
    assert (recent.first_token, recent.gap) == (0.5, 0.04)
    assert (arrivals.recent(9.0).first_token, arrivals.recent(9.0).gap) == (0.0, 0.0)


def paced(gap: float, seconds: float, meter: StepMeter, start: float = 0.0, had: int = 1) -> float:
    """Let four streams, which `had` some tokens, get one every `gap` seconds."""
    for tick in range(1, round(seconds / TICK) + 1):
        meter.observe_streams(start + tick * TICK, streams(had + round(tick * TICK / gap)), 0, context=1000.0)
    return start + seconds


def test_the_window_shrinks_when_our_own_tokens_come_late_beside_a_synchronous_request() -> None:
    meter = StepMeter()
    now = paced(0.01, 10, meter)
    own = BatchLoad(requests=4, context_tokens=2000)
    scrape = Scrape(EngineGauges(5, 0, 0.0, 0, 0, 0), now, own=4, blind=True)
    steps = meter.now(scrape, own, synchronous=1)
    assert steps is not None
    assert round(steps.measured, 3) == 0.01
    calm, decision = decide(WIDE, Signals(now, scrape, own, LISTENING, steps), BLIND)
    assert decision.reason in (Reason.OPEN, Reason.RAMP)
    later = paced(0.08, 1, meter, now, had=1001)
    slow = Scrape(scrape.gauges, later, own=4, blind=True)
    _, decision = decide(calm, Signals(later, slow, own, LISTENING, meter.now(slow, own, 1)), BLIND)
    assert (decision.reason, decision.signal) == (Reason.SHRINK_LATENCY, "step_seconds")


def test_late_first_tokens_close_the_gate_and_it_opens_again() -> None:
    signals = look(own=2)
    late = Signals(signals.now, signals.scrape, signals.batch, first_token=FirstTokenWait(2.0, 1.0))
    _, decision = decide(WIDE, late, BLIND)
    assert (decision.allowance, decision.reason, decision.value) == (0, Reason.CLOSED_LATENCY, 2.0)
    assert decide(WIDE, signals, BLIND)[1].allowance > 0


def test_an_engine_of_unknown_size_has_a_small_cap_and_its_gate_is_proven() -> None:
    assert BLIND.cap == BLIND_CAP
    assert HeadroomLimits.of(SHIPPED, 256, blind=True, slots_known=True).cap == 254
    assert ("first_token_seconds", Reason.CLOSED_LATENCY) in [(c.signal, c.reason) for c in prove(BLIND)]
    assert decide(State(), look(own=0), BLIND)[1].allowance <= BLIND_CAP
