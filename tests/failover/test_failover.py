"""Claims about the loss of the database's primary, and of connections between hosts, under load."""

import json
import os
import subprocess
import sys

import pytest

from app.processes import dies_with_parent
from tests.crash.checker import report
from tests.crash.history import MUST_BE_ZERO
from tests.failover.drills import run
from tests.timing import note

LIMIT_SECONDS = 600


async def test_when_the_primary_is_killed_and_its_standby_promoted_nothing_is_lost_doubled_or_run_again() -> None:
    outcome = await run("crash")
    text = report(outcome.history, 1)
    note(f"works again {outcome.recovery[0]:.2f} s after the promote" if outcome.recovery else "no recovery")
    assert outcome.history.sound, text
    assert outcome.recovery


@pytest.mark.slow
def test_hosts_that_lose_each_other_and_a_primary_that_is_cut_off_lose_double_and_run_again_nothing() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0:
        reason = "network namespaces need root and util-linux"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    command = [sys.executable, "-m", "tests.failover", "--only", "partition", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        preexec_fn=dies_with_parent(),
    )
    found = json.loads(done.stdout.splitlines()[-1])
    note(f"{found['items']} items, works again {found['recovery_s']} s after the promote")
    assert {name: found[name] for name in MUST_BE_ZERO if found[name]} == {}, done.stderr[-8000:]
    assert found["recovery_s"]
