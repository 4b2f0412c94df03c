"""The figures in GUARANTEES.md are those of the code. Other tests shorten these times; this one pins them."""

from pathlib import Path
from typing import Any

import pytest

from app import life_signs, off_loop
from app.api import queue_gauges, server
from app.api.openai import flex, flex_stream
from app.batches import installation_status, single_request
from app.budgets import queued
from app.changes import service as changes
from app.cli import supervisor
from app.console import forms, stream
from app.db import byte_pages, migrate, pool, stale_if_error, watched_connection
from app.duties import schedule
from app.engines import client, continuation, outcome
from app.flows import stages
from app.gateway import engine_directory, resent_requests, waker
from app.headroom import controller
from app.metering import ledger, sync_usage
from app.pipelines import lifecycle
from app.policy import in_force
from app.queue import charges, estimate, fair_order_sql, lost_workers, poison, pool_status_sql, service
from app.serving import request_limits
from app.sessions import service as sessions
from app.settings import Settings
from app.telemetry import FILE_BYTES
from app.tenants import key_cache
from app.tracing import otlp
from app.webhooks import endpoint_health, history_sql, name_resolution, retry_policy
from app.webhooks.validation import DeliveryLimits
from workers.engine import step_budget
from workers.engine.door import keys as door_keys
from workers.gpu import batch_share, claim_backoff, claimer, item_runner, managed_engine, requests_in_engine
from workers.gpu.tuning import TUNING
from workers.notifier import concurrency_limiter
from workers.notifier.delivery import LEASE_TIMEOUTS
from workers.steward import leader, rest, sealing

PAGE = Path(__file__).parents[1] / "GUARANTEES.md"
SHIPPED = {name: field.default for name, field in Settings.model_fields.items()}
# What the page says, the value that the code has, and the value that makes it true.
FIGURES: list[tuple[str, Any, Any]] = [
    ("whose loops stand still for five minutes", life_signs.STILL_SECONDS, 300),
    ("ends with an error (5001) at the second death", poison.DEADLY, 2),
    ("the first loss charges the whole chunk, the second splits it", poison.SUSPECT_ATTEMPTS, 2),
    ("once an hour, if most of several workers fell silent together", lost_workers.SPARED_SECONDS, 3600),
    ("it waits up to 30 seconds for that", TUNING.suspect_wait_seconds, 30),
    ("takes its charge back when it returns, at most three times per chunk", charges.MOST, 3),
    ("Otherwise the item alone is tried three times more", outcome.BETWEEN_TRIES - 1, 3),
    ("cannot be read or stored, is tried once more", outcome.UNSTORABLE_TRIES - 1, 1),
    ("sent up to ten times over about 75 hours", (retry_policy.ATTEMPTS, sum(retry_policy.DELAYS) // 3600), (10, 75)),
    ("After five days of failure the endpoint is disabled", Settings.model_fields["webhook_disable_days"].default, 5),
    ("Near deadlines may go first in every fourth claim", claimer.URGENT_EVERY, 4),
    ("beyond 16 accounts with work for one model", fair_order_sql._NEXT_ACCOUNTS, 16),
    ("a lost message or a killed worker costs ten minutes at most", schedule.RETRY_SECONDS, 600),
    ("One without success for a day is a problem", schedule.STUCK_SECONDS, 86_400),
    ("From 50 workers on, an idle one sends nothing but its heartbeat", claim_backoff.FEW_WORKERS, 50),
    ("a call that is lost costs a second", waker.CALL_SECONDS, 1),
    ("the leading steward asks the database two questions a second", rest.LOOK_SECONDS, 1),
    ("and a worker its engine and the queue once a second", claim_backoff.CALM_SECONDS, 1),
    ("The scheduler's caches are computed again every two minutes", schedule.BY_NAME["fair_order"].every_seconds, 120),
    ("A request yields at most three times in one lease", requests_in_engine.MOST_YIELDS, 3),
    ("the stream sends eight tokens at a time", continuation.STREAM_INTERVAL, 8),
    ("or after 2 seconds if its client may repeat the call", resent_requests.GRACE_SECONDS, 2),
    (
        "If a key is revoked, expires or gets other limits, each process applies the change within one second",
        key_cache.TRUST_SECONDS,
        1,
    ),
    (
        "A look-up of a key that the database does not answer within a tenth of a second",
        stale_if_error.PATIENCE_SECONDS,
        0.1,
    ),
    ("seen in the last ten minutes stay valid while the database", stale_if_error.MAX_STALE_SECONDS, 600),
    ("is still called for ten seconds after the outage", engine_directory.RETURN_SECONDS, 10),
    ("Each endpoint has at most `max_in_flight` (8) deliveries in progress", DeliveryLimits().max_in_flight, 8),
    ("A delivery that has waited a second for its receiver", concurrency_limiter.SLOW_SECONDS, 1),
    ("After five failures in a row it is paused", endpoint_health.FAILURES_IN_A_ROW, 5),
    ("in its own thread, for at most five seconds", name_resolution.SECONDS, 5),
    ("an account resolves at most sixteen names at once", name_resolution.MOST_OF_ONE, 16),
    ("An account has at most a thousand endpoints", Settings.model_fields["webhook_endpoints"].default, 1000),
    ("Connection pools try to connect at least every two seconds", pool.RECONNECT_SECONDS, 2),
    (
        "Slackwater reads what an engine serves before it announces the engine, every 5 seconds",
        TUNING.inspection_seconds,
        5,
    ),
    ("Scrapes read the database at most once in five seconds", queue_gauges.FRESH_SECONDS, 5),
    ("A blank every second keeps the connection open", (flex.BLANK_SECONDS, flex_stream.SILENT_SECONDS), (1, 1)),
    ("while that waits or runs and for 15 minutes after it", single_request.SAME_SECONDS, 900),
    ("keys that the door knows go on working for an hour", door_keys.HELD_SECONDS, 3600),
    ("A limit may be exceeded by what arrives within a second", door_keys.RENEW_SECONDS, 1),
    ("headers are limited (32 KB, 100 lines)", (request_limits.HEAD_BYTES, request_limits.HEADERS), (32_768, 100)),
    ("A form of the console has at most 64 KiB", forms.MOST_BYTES, 65_536),
    ("above 64 KiB it is parsed and searched in a thread", off_loop.SMALL_BYTES, 65_536),
    ("count at most a thousand deliveries of a state", history_sql.MOST_COUNTED, 1000),
    ("Without the steward, at most 128 chunks with money run", queued.MOST_READY, 128),
    ("Beyond 8,192 waiting spans the newest are dropped", otlp.MOST_WAITING, 8192),
    ("the lists of failed items of its last 30 seconds", batch_share.UNTOLD_SECONDS, 30),
    ("Synchronous requests are booked once a second", sync_usage.BOOK_SECONDS, 1),
    ("days that are dropped after 400 days", ledger.DAYS_KEPT_DAYS, 400),
    ("an open stream looks at its session every five seconds", stream.PING_SECONDS, 5),
    ("The leading steward looks once a minute", sealing.LOOK_SECONDS, 60),
    ("A migration waits at most two seconds for a lock", migrate.LOCK_TIMEOUT, "2s"),
    ("a transaction that stays open for five minutes makes a migration give up", migrate.PATIENCE_SECONDS, 300),
    ("of which a pack by value has more than 10,000 values", stages.MOST_GROUPS, 10_000),
    ("that has more than ten times as many items as its input", stages.MOST_TIMES_INPUT, 10),
    (
        "of whose results in a stage a fifth has failed (from 50 on)",
        (lifecycle.MOST_FAILING, lifecycle.LEAST_RESULTS),
        (0.2, 50),
    ),
    ("a steward that rests makes a round every 20 seconds at least", rest.ROUND_SECONDS, 20),
    ("`SLACKWATER_REQUEST_TIMEOUT_SECONDS` (600)", SHIPPED["request_timeout_seconds"], 600),
    ("after six times as long if the plug-in may have frozen it", client.FREEZE_TIMEOUT_FACTOR, 6),
    ("A round of the steward that takes longer than a minute loses the lead", leader._HANGS_SECONDS, 60),
    ("a leader that says nothing for 5 seconds", leader._IDLE_TIMEOUT, "set idle_session_timeout = '5s'"),
    ("is started anew after 60 seconds without an answer", managed_engine.UNHEALTHY_SECONDS, 60),
    ("One of several processes of an API is replaced after 30 seconds", server._SILENT_SECONDS, 30),
    ("restarted after 0.5 s, and after up to 30 s if it dies again", supervisor._BACKOFF_SECONDS, (0.5, 30)),
    ("if it dies again and again within 30 s", supervisor._STEADY_SECONDS, 30),
    ("its lease (`SLACKWATER_LEASE_SECONDS`, 10) and 5 s more", SHIPPED["lease_seconds"], 10),
    ("another one looks every second, and has the lead", leader._RETRY_SECONDS, 1),
    ("a turn of a conversation has failed 30 s after its last sign", sessions.LEASE_SECONDS, 30),
    (
        "after twice `SLACKWATER_WEBHOOK_TIMEOUT_SECONDS` (30 s in all)",
        (LEASE_TIMEOUTS, LEASE_TIMEOUTS * SHIPPED["webhook_timeout_seconds"]),
        (2, 30),
    ),
    ("the next sweep (`SLACKWATER_WEBHOOK_SWEEP_SECONDS`, 2)", SHIPPED["webhook_sweep_seconds"], 2),
    ("`SLACKWATER_WEBHOOK_REHINT_SECONDS` (10)", SHIPPED["webhook_rehint_seconds"], 10),
    ("1 s later, then twice as long each time, up to 60 s", TUNING.restart_seconds, (1, 60)),
    ("its items are back in the queue after 1 s", TUNING.engine_death_seconds, 1),
    ("the look at its health every 0.5 s", TUNING.health_seconds, 0.5),
    (
        "`/status` is at most a second old, `/metrics` five",
        (installation_status.FRESH_SECONDS, queue_gauges.FRESH_SECONDS),
        (1, 5),
    ),
    (
        "longer than 2 seconds to answer: what was read last is shown for a minute",
        (installation_status.PATIENCE_SECONDS, installation_status.STALE_SECONDS),
        (2, 60),
    ),
    ("No ETA is below 3 seconds", estimate.LEAST_SECONDS, 3),
    ("`high` up to 20 %, `medium` up to 50 %, else `low`", estimate.SPREADS, {"high": 0.2, "medium": 0.5}),
    ("One claim of four begins with the nearest deadline", claimer.URGENT_EVERY, 4),
    ("if that is within 15 minutes", service.URGENT_SECONDS, 900),
    ("than 100,000 tokens times its weight", service.URGENT_LEAD_TOKENS, 100_000),
    (
        "From a slack of 20 % on, a step may take longer beside callers, in quarters",
        (controller.AT_EASE, step_budget._URGENCY_LEVELS),
        (0.2, 4),
    ),
    ("up to `SLACKWATER_ITL_CEILING_MS` at 5 %", controller.AT_RISK, 0.05),
    ("one that is older than a minute is not believed", pool_status_sql.FRESH, "at > now() - interval '1 minute'"),
    ("in chunks of 64 items", SHIPPED["chunk_items"], 64),
    ("a body beyond `SLACKWATER_SPOOL_MEMORY_MB` (8)", SHIPPED["spool_memory_mb"], 8),
    ("Answers are read in pages of 4 MiB", byte_pages.PAGE_BYTES, 4 * 2**20),
    ("at most 4 chunks at once", max(fair_order_sql.SIZES), 4),
    ("A statement stores at most 8 MiB of results", TUNING.flush_bytes, 8 * 2**20),
    ("100,000 rows and 35 days of incidents", (changes.KEPT_ROWS, changes.KEPT_DAYS), (100_000, 35)),
    ("`SLACKWATER_DECISION_ROWS` (10,000)", SHIPPED["decision_rows"], 10_000),
    ("log files of 10 MB", FILE_BYTES, 10 * 2**20),
]
# At most so much, because another pause comes to it.
WITHIN: list[tuple[str, float, float]] = [
    (
        "goes on by another connection within two leases",
        watched_connection.quiet_seconds(10) + watched_connection.ANSWER_SECONDS,
        20,
    ),
    ("dies, this is noticed within 2 seconds", TUNING.engine_poll_seconds, 0.5),
    ("tried again up to `SLACKWATER_REQUEST_ATTEMPTS` times within seconds", item_runner.BACKOFF_SECONDS[1], 8),
    ("Otherwise it gets 503 within 3 seconds", engine_directory.GRACE_SECONDS, 2),
    (
        "A key that is revoked is refused by all within two seconds while the database answers",
        key_cache.TRUST_SECONDS + stale_if_error.PATIENCE_SECONDS,
        2,
    ),
    ("Every process follows a new policy within a second", in_force.REFRESH_SECONDS, 0.5),
    (
        "work nowhere after two seconds while the database",
        key_cache.TRUST_SECONDS + stale_if_error.PATIENCE_SECONDS,
        1.5,
    ),
    ("at no engine's door after seven", door_keys.FRESH_SECONDS + key_cache.TRUST_SECONDS, 6),
]


@pytest.mark.parametrize(("sentence", "found", "promised"), FIGURES)
def test_a_figure_of_the_page_is_that_of_the_code(sentence: str, found: Any, promised: Any) -> None:
    assert sentence in PAGE.read_text()
    assert found == promised


@pytest.mark.parametrize(("sentence", "found", "most"), WITHIN)
def test_a_time_of_the_page_leaves_room_for_the_code(sentence: str, found: float, most: float) -> None:
    assert sentence in PAGE.read_text()
    assert 0 < found <= most
