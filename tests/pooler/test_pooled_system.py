"""The whole product through a PgBouncer in transaction mode."""

import pytest

from tests.crash.checker import report
from tests.pooler.pooled_system import attacked
from tests.timing import note

pytestmark = pytest.mark.slow

RESTARTS = 2


async def test_through_a_pooler_that_is_killed_under_load_every_item_ends_once_and_nothing_stored_is_run_again(
    installed: None,
) -> None:
    history = await attacked(seed=1, restarts=RESTARTS, pause_seconds=1.5)
    text = report(history, 1)
    note(text)
    assert history.sound, text
    assert history.faults.total() == RESTARTS
    assert history.items
