"""Claims about benchmarks.console: what its parts without I/O count, and that its arms measure the real thing in small."""

import asyncio
import json
import subprocess
import sys

import pytest

from benchmarks.console.live_stream import LiveStream, StreamEndedError
from benchmarks.console.statement_log import statements

LOG = """2026-11-23 12:40:12.001 UTC [41] LOG:  duration: 0.250 ms  parse _pg3_1: select
\t  1 from batch
2026-11-23 12:40:12.002 UTC [42] LOG:  duration: 9.000 ms  statement: select 2
2026-11-23 12:40:12.002 UTC [41] LOG:  duration: 0.500 ms  bind _pg3_1: select
\t  1 from batch
2026-11-23 12:40:12.002 UTC [41] DETAIL:  Parameters: $1 = '7'
2026-11-23 12:40:12.003 UTC [41] LOG:  duration: 4.000 ms  execute _pg3_1: select
\t  1 from batch
2026-11-23 12:40:12.003 UTC [41] LOG:  checkpoint starting: time
"""


def test_a_statement_costs_what_its_parsing_planning_and_running_took() -> None:
    assert [(ms, text.split()[:2]) for ms, text in statements(LOG)] == [
        (9.0, ["select", "2"]),
        (4.75, ["select", "1"]),
    ]


class _Writer:
    def close(self) -> None:
        """Nothing to close."""


async def _events(chunks: list[bytes]) -> list[bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n")
    reader.feed_eof()
    stream = LiveStream("page", reader, _Writer())  # type: ignore[arg-type]
    found: list[bytes] = []
    with pytest.raises(StreamEndedError, match="page was closed"):
        async for _, event in stream.events():
            found.append(event)
    return found


async def test_an_event_that_comes_in_two_chunks_is_one() -> None:
    assert await _events([b"data: a\ndata: b", b"\n\ndata: c\n\n"]) == [b"data: a\ndata: b", b"data: c"]


@pytest.mark.slow
def test_small_arms_measure_a_real_console() -> None:
    command = [sys.executable, "-m", "benchmarks.console", "--json", "--quick", "--only", "pages,live"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert 20 < found["first_page_kb_gz"] <= 60
    assert all(0 < ms < 1000 for ms in found["server_ms_p95"].values())
    assert found["database_ms_p95"].keys() == found["server_ms_p95"].keys()
    assert all(0 <= ms < 500 for ms in found["database_ms_p95"].values())
    assert 0 < found["live_update_lag_ms_p50"] <= found["live_update_lag_ms_p95"] < 10_000
