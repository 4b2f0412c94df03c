"""The figures in GUARANTEES.md are those of the code. Other tests shorten these times; this one pins them."""

from pathlib import Path
from typing import Any

import pytest

from app.api import queue_gauges
from app.console import stream
from app.db import migrate, pool
from app.duties import schedule
from app.engines import continuation
from app.flows import stages
from app.gateway import engine_directory, resent_requests
from app.metering import ledger, sync_usage
from app.policy import in_force
from app.queue import charges, fair_order_sql
from app.settings import Settings
from app.tenants import key_cache
from app.webhooks import retry_policy
from workers.gpu import claimer, requests_in_engine
from workers.gpu.tuning import TUNING

PAGE = Path(__file__).parents[1] / "GUARANTEES.md"
# What the page says, the value that the code has, and the value that makes it true.
FIGURES: list[tuple[str, Any, Any]] = [
    ("it waits up to 30 seconds for that", TUNING.suspect_wait_seconds, 30),
    ("takes its charge back when it returns, at most three times per chunk", charges.MOST, 3),
    ("sent up to ten times over about 75 hours", (retry_policy.ATTEMPTS, sum(retry_policy.DELAYS) // 3600), (10, 75)),
    ("After five days of failure the endpoint is disabled", Settings.model_fields["webhook_disable_days"].default, 5),
    ("Near deadlines may go first in every fourth claim", claimer.URGENT_EVERY, 4),
    ("beyond 16 accounts with work for one model", fair_order_sql._NEXT_ACCOUNTS, 16),
    ("The scheduler's caches are computed again every two minutes", schedule.BY_NAME["fair_order"].every_seconds, 120),
    ("A request yields at most three times in one lease", requests_in_engine.MOST_YIELDS, 3),
    ("the stream sends eight tokens at a time", continuation.STREAM_INTERVAL, 8),
    ("or after 2 seconds if its client may repeat the call", resent_requests.GRACE_SECONDS, 2),
    (
        "If a key is revoked, expires or gets other limits, each process applies the change within one second",
        key_cache.TRUST_SECONDS,
        1,
    ),
    ("Connection pools try to connect at least every two seconds", pool.RECONNECT_SECONDS, 2),
    (
        "Slackwater reads what an engine serves before it announces the engine, every 5 seconds",
        TUNING.inspection_seconds,
        5,
    ),
    ("Scrapes read the database at most once in five seconds", queue_gauges.FRESH_SECONDS, 5),
    ("Synchronous requests are booked once a second", sync_usage.BOOK_SECONDS, 1),
    ("days that are dropped after 400 days", ledger.DAYS_KEPT_DAYS, 400),
    ("an open stream looks at its session every five seconds", stream.PING_SECONDS, 5),
    ("A migration waits at most two seconds for a lock", migrate.LOCK_TIMEOUT, "2s"),
    ("a transaction that stays open for five minutes makes a migration give up", migrate.PATIENCE_SECONDS, 300),
    ("of which a pack by value has more than 10,000 values", stages.MOST_GROUPS, 10_000),
    ("that has ten times as many items as its input", stages.MOST_TIMES_INPUT, 10),
]
# At most so much, because another pause comes to it.
WITHIN: list[tuple[str, float, float]] = [
    ("dies, this is noticed within 2 seconds", TUNING.engine_poll_seconds, 0.5),
    ("Otherwise it gets 503 within 3 seconds", engine_directory.GRACE_SECONDS, 2),
    ("Every process follows a new policy within a second", in_force.REFRESH_SECONDS, 0.5),
]


@pytest.mark.parametrize(("sentence", "found", "promised"), FIGURES)
def test_a_figure_of_the_page_is_that_of_the_code(sentence: str, found: Any, promised: Any) -> None:
    assert sentence in PAGE.read_text()
    assert found == promised


@pytest.mark.parametrize(("sentence", "found", "most"), WITHIN)
def test_a_time_of_the_page_leaves_room_for_the_code(sentence: str, found: float, most: float) -> None:
    assert sentence in PAGE.read_text()
    assert 0 < found <= most
