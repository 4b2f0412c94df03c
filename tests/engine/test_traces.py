"""vLLM's own spans, by vLLM's own tracer: below an item that has a span, and none for any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.engines import catalogue
from app.settings import Settings
from app.trace_context import SpanContext
from testing.fakes.otlp_receiver import receiver
from testing.waiting import LIMIT_SECONDS
from workers.gpu.managed_engine import vllm_command, vllm_environment

pytest.importorskip("vllm")

# What its output processor does at the end of each request.
REQUESTS = """
import sys, time
from vllm.tracing import SpanKind, extract_trace_context, init_tracer, instrument_manual
init_tracer("vllm.llm_engine", sys.argv[1])
for header in sys.argv[2:]:
    context = extract_trace_context({"traceparent": header})
    instrument_manual(span_name="llm_request", start_time=time.time_ns(), context=context, kind=SpanKind.SERVER)
"""


def test_the_engines_span_hangs_below_a_recorded_one_and_an_unsampled_request_has_none(tmp_path: Path) -> None:
    model = catalogue.load(Settings().models_file).resolve("smollm2-135m-instruct")
    assert model is not None
    recorded, other = SpanContext.new(), SpanContext.new().unsampled()
    with receiver() as found:
        command = vllm_command(model, tmp_path, 1, otlp_endpoint=f"{found.url}/")
        endpoint = command[command.index("--otlp-traces-endpoint") + 1]
        environment = {**os.environ, **vllm_environment(model)}
        subprocess.run(
            [sys.executable, "-c", REQUESTS, endpoint, recorded.header, other.header],
            env=environment,
            check=True,
            timeout=LIMIT_SECONDS,
        )
    [span] = found.spans
    assert (span.name, span.service) == ("llm_request", "vllm")
    assert (span.trace_id, span.parent) == (recorded.trace_id, recorded.span_id)
