"""The way to the collector: what is lost is counted, and nothing waits for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from app import optional_packages
from app.settings import Settings
from app.trace_context import SpanContext
from app.tracing import names, otlp, recorder
from app.tracing.otlp import Exporter
from app.tracing.span import Kind, Span
from testing.fakes.otlp_receiver import receiver
from testing.waiting import eventually
from tests.gpu.conftest import world as _world
from tests.gpu.world import World

world = _world


@pytest.fixture(autouse=True)
def _off_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # seconds; the SDK tries again for so long
    yield
    recorder.close()


def a_span(name: str = "one") -> Span:
    return Span(name=name, kind=Kind.INTERNAL, context=SpanContext.new(), start_ns=1, end_ns=2)


def metric() -> dict[str, int]:
    registry = CollectorRegistry()
    registry.register(recorder.SpanCounts())
    lines = [line for line in generate_latest(registry).decode().splitlines() if "_total{" in line]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def test_what_the_collector_takes_names_its_process(settings: Settings) -> None:
    with receiver() as found:
        recorder.configure(settings.model_copy(update={"otlp_endpoint": f"{found.url}/"}), "gpu/engine-3")
        recorder.record(a_span())
        recorder.record(
            Span(name="no", kind=Kind.INTERNAL, context=SpanContext("1" * 32, "2" * 16, False), start_ns=1, end_ns=2)
        )
        recorder.close()
    [span] = found.spans
    assert (span.name, span.service) == ("one", "slackwater-gpu")


def test_beyond_a_bound_spans_are_dropped_and_counted_while_the_collector_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "MOST_WAITING", 50)
    recorder.use(Exporter("http://127.0.0.1:9", "test"))
    for _ in range(80):
        recorder.record(a_span())
    assert metric() == {"exported": 0, "failed": 0, "dropped": 30}


async def test_the_death_of_the_collector_harms_no_batch_and_it_gets_spans_again_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    with receiver() as first:
        recorder.use(Exporter(first.url, "gpu/engine-0"))
        async with world.worker(trace_item_share=1.0):
            await world.finished(await world.submit(["a", "b"]))
            await eventually(lambda: bool(first.spans))
    with structlog.testing.capture_logs() as logs:
        async with world.worker(trace_item_share=1.0):
            batch_id = await world.submit(["c", "d"])
            await world.finished(batch_id)
            assert all(ok for ok, _, _ in (await world.results(batch_id)).values())
            await eventually(lambda: metric()["failed"] > 0)
            with receiver(first.port) as second:
                await world.finished(await world.submit(["e", "f"]))
                await eventually(lambda: bool(second.named("chat")))
    assert [line["event"] for line in logs if line["event"].startswith("traces.")] == [
        "traces.not_taken",
        "traces.taken_again",
    ]


def test_without_the_sdk_one_line_says_how_to_install_it_and_nothing_else_happens(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_packages, "find_spec", lambda _: None)
    with structlog.testing.capture_logs() as logs:
        recorder.configure(settings.model_copy(update={"otlp_endpoint": "http://127.0.0.1:4318"}), "api")
    recorder.record(a_span())
    [line] = logs
    assert (line["event"], line["log_level"]) == ("traces.off", "warning")
    assert "pip install 'slackwater[otel]'" in line["remedy"]
    assert not recorder.on()


def test_without_an_endpoint_nothing_is_said_or_recorded(settings: Settings) -> None:
    with structlog.testing.capture_logs() as logs:
        recorder.configure(settings, "api")
    assert not logs
    assert not recorder.on()


@pytest.mark.parametrize("variable", ["SLACKWATER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_the_endpoint_is_read_under_both_names(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://collector:4318")
    assert Settings().otlp_endpoint == "http://collector:4318"


def test_every_attribute_and_span_is_on_the_page_of_traces() -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    ours = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    missing = [value for value in ours if value.startswith("slackwater.") or " " in value if f"`{value}`" not in page]
    assert not missing


def test_no_attribute_is_for_content() -> None:
    values = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    forbidden = ("prompt", "message.content", "input.messages", "output.messages", "system_instructions", "body")
    assert not [value for value in values if any(word in value for word in forbidden)]
