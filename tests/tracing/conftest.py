"""A collector in this process, and a recorder that sends to it."""

from collections.abc import Iterator

import pytest

from app.tracing import recorder
from app.tracing.otlp import Exporter
from testing.fakes.otlp_receiver import Receiver, receiver


@pytest.fixture
def collector() -> Iterator[Receiver]:
    """Receives the spans of this process. `recorder.close()` sends those that wait."""
    with receiver() as found:
        recorder.use(Exporter(found.url, "test/0"))
        yield found
        recorder.close()
