"""The whole product under seeded faults."""

import os

from tests.crash.checker import check, report
from tests.timing import note

SEED = 20261121
SECONDS = 20.0


async def test_under_seeded_faults_every_item_ends_once_in_order_and_nothing_stored_is_run_again() -> None:
    """`SLACKWATER_CRASH_SEED` and `SLACKWATER_CRASH_SECONDS` choose another history."""
    seed = int(os.environ.get("SLACKWATER_CRASH_SEED", SEED))
    history = await check(seed, float(os.environ.get("SLACKWATER_CRASH_SECONDS", SECONDS)))
    text = report(history, seed)
    note(text)
    assert history.sound, text
