"""The whole product under seeded faults: in `make test` a short run with fewer parts."""

import os

from tests.crash.checker import check, report
from tests.crash.system import Small, System
from tests.sets import examples
from tests.timing import note

SEED = 20261121
SECONDS = examples(4, 20)
KIND = System if SECONDS >= 20 else Small


async def test_under_seeded_faults_every_item_ends_once_in_order_and_nothing_stored_is_run_again() -> None:
    """`SLACKWATER_CRASH_SEED` and `SLACKWATER_CRASH_SECONDS` choose another history."""
    seed = int(os.environ.get("SLACKWATER_CRASH_SEED", SEED))
    history = await check(seed, float(os.environ.get("SLACKWATER_CRASH_SECONDS", SECONDS)), kind=KIND)
    text = report(history, seed)
    note(text)
    assert history.sound, text
