"""The whole product at its shipped settings under all faults, a minute for each seed."""

import pytest

from app.settings import Settings
from tests.crash.checker import check, report
from tests.crash.system import Shipped
from tests.timing import note

pytestmark = pytest.mark.slow

SEEDS = range(1, 11)
FAILED: tuple[int, ...] = (102,)  # in which a fault was once found: of the product or of the checker
SECONDS = 60


@pytest.mark.parametrize("seed", [*SEEDS, *FAILED])
async def test_under_all_faults_nothing_is_lost_repeated_or_overspent(seed: int) -> None:
    history = await check(seed, SECONDS, kind=Shipped, lease=Settings().lease_seconds)
    text = report(history, seed)
    note(text)
    assert history.sound, text
