"""The soak itself, for a minute: whether it reads what it promises, and the installation answers every request of the load."""

import json
import subprocess
import sys

import pytest

from testing.waiting import LIMIT_SECONDS
from tests.soak.readings import PARTS

pytestmark = pytest.mark.slow


def test_a_minute_of_load_has_every_reading_and_no_request_fails() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1", "--most", "1000000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    series = found["growth_percent_an_hour"]
    wanted = {f"{kind}.{part}" for kind in ("rss_mb", "open_files") for part in PARTS}
    assert series.keys() >= wanted | {"hot_tables_mb", "hot_indexes_mb", "hot_dead_rows", "oldest_leased_batch_s"}
    assert found["requests"]["answers"] > 0
    assert found["webhooks"] > 0
