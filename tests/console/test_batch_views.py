"""Claims about what the lists of batches and items say, without a database."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from app.access.roles import Role, Viewer
from app.batches.validation.openai_lines import LineProblem
from app.batches.why_chain import Link
from app.console.queries import BatchRow
from app.console.queries_items import ITEM_ROWS, ItemPage
from app.console.views import (
    batch,
    batch_actions,
    batch_items,
    batch_progress,
    item,
    new_batch,
    plots,
    selection,
    signs,
)
from app.console.views.plots import Plot
from app.queue.item_counts import ItemCounts
from app.queue.items import ItemFacts
from app.states import BATCH, BatchState

NOW = datetime(2026, 11, 23, 14, 16, 2, tzinfo=UTC)
ADMIN = Viewer(1, "ada", Role.ADMIN, 1, "acme", NOW, NOW)


def a_batch(state: BatchState = BatchState.OPEN, **changes: Any) -> BatchRow:
    usual: dict[str, Any] = {
        "batch_id": 1, "request_id": uuid4(), "tenant_id": 1, "account": "acme", "model": "m", "state": state, "run": 2,
        "total": 100, "ok": 50, "failed": 3, "prompt_tokens": 10, "cached_tokens": 1, "completion_tokens": 5,
        "created_at": NOW, "opened_at": NOW, "finalized_at": NOW if state in BATCH.final() else None, "expires_at": None,
        "tags": [], "metadata": None, "policy": None, "endpoint": "/v1", "line_id": None, "traceparent": None,
    }  # fmt: skip
    return BatchRow(**usual | changes)


def an_item(seq: int) -> ItemFacts:
    return ItemFacts(seq, None, None, 5, True, run=1, attempt=2, ran_ms=5000, finished_at=NOW - timedelta(seconds=seq))


def test_an_item_that_was_sent_before_is_not_said_to_have_waited_until_it_was_sent_again() -> None:
    again = replace(an_item(1), queued_ms=420_000)
    for seen, words in (
        (replace(again, attempt=1), "waited 7 min"),
        (again, "7 min after its run began, 2 tries in all"),
    ):
        sent = item.view(a_batch(), [seen], ADMIN, NOW)["tries"][1]
        assert (sent["words"], sent["sub"].replace("\u00a0", " ")) == ("sent to an engine", words)


@pytest.mark.parametrize(
    ("verb", "able"),
    [
        ("pause", {BatchState.OPEN}),
        ("resume", {BatchState.PAUSED}),
        ("cancel", {BatchState.OPEN, BatchState.PAUSED}),
        ("retry", BATCH.final()),
    ],
)
def test_an_action_on_several_batches_takes_those_whose_state_allows_it(verb: str, able: set[BatchState]) -> None:
    rows = [a_batch(state) for state in BatchState]
    assert {row.state for row in selection.able(verb, rows)} == set(able)
    shown = selection.view(verb, rows, more=False, back="/console/batches")
    assert len(shown["rows"]) == len(able)
    assert len(shown["left"]) == len(rows) - len(able)
    assert shown["cli"].count(f"slackwater batch {verb} ") == len(able)
    assert all(each["reason"] for each in shown["left"])


def test_a_batch_without_failures_is_not_retried() -> None:
    assert batch_actions.obstacle("retry", a_batch(BatchState.COMPLETED, ok=100, failed=0)) == "every item was answered"


def test_a_retry_names_the_run_that_it_repeats() -> None:
    row = a_batch(BatchState.COMPLETED)
    [shown] = selection.view("retry", [row], more=False, back="")["rows"]
    assert shown["value"] == f"{row.request_id}.2"
    assert shown["items"] == "50 items without an answer"


def listed(page: ItemPage) -> dict[str, Any]:
    return batch_items.view(a_batch(), (50, 3), page, {}, ADMIN)


def test_a_walk_goes_on_where_it_stopped_even_if_it_found_nothing() -> None:
    found = listed(ItemPage("retried", [], 4_000))
    assert "items=retried&from=4001" in found["pages"]["older"]
    assert "until item 4,000" in found["nothing"]
    assert listed(ItemPage("retried", []))["pages"]["older"] == ""


def test_a_full_page_goes_on_after_its_last_row() -> None:
    found = listed(ItemPage("slow", [an_item(3 * n) for n in range(ITEM_ROWS + 1)], None, 4_000.0))
    assert len(found["items"]) == ITEM_ROWS
    assert f"from={3 * (ITEM_ROWS - 1) + 1}#" in found["pages"]["older"]
    assert "4" in found["pages"]["words"]


def test_a_file_that_arrives_is_told_in_the_order_of_its_lines() -> None:
    problems = [LineProblem("invalid", line, f"line {line}\u202e") for line in range(1, 100)]
    report = new_batch.report(2_000, problems)
    assert report["words"] == "99 lines of 2,000 so far"
    assert [each["line"] for each in report["problems"][:3]] == ["1", "2", "3"]
    assert len(report["problems"]) == new_batch.MOST_PROBLEMS
    assert "\u202e" not in report["problems"][0]["words"]


def far(eta_seconds: float, *, ran: timedelta = timedelta(minutes=2)) -> tuple[list[str], Plot]:
    """The times below the drawing of a batch that has run for so long, and the drawing."""
    row = a_batch(opened_at=NOW - ran)
    status = SimpleNamespace(items=ItemCounts(row.total, 50, 3), finalized_at=None, state=row.state)
    estimate = SimpleNamespace(eta_seconds=eta_seconds, confidence="low")
    why: Any = SimpleNamespace(status=status, estimate=estimate)
    start, end = batch_progress.span(row, why, NOW)
    found = plots.ticks(start, end, ends="", now=NOW)
    return [tick.text for tick in found], batch_progress.drawing(row, why, ([], 0), start, end, NOW)


def test_a_far_end_is_said_and_not_drawn_to() -> None:
    times, drawn = far(294 * 86_400)
    assert len(times) <= 6
    assert [word.text for word in drawn.words if word.text.endswith("→")] == ["13 Sep 14:16 →"]
    cone, middle = (shape.path for shape in drawn.shapes[-2:])
    assert {float(place.split()[0]) for place in re.findall(r"[\d.]+ [\d.]+", cone + middle)} <= {
        *(n / 10 for n in range(3601))
    }
    assert float(middle.rsplit(" ", 1)[1]) > 40  # it leaves at the right, far below the top


def test_a_near_end_is_drawn() -> None:
    _, drawn = far(600)
    assert [word.text for word in drawn.words] == ["14:26", "53 done"]
    assert drawn.shapes[-1].path.endswith(" 7")


def test_a_new_batch_is_promised_by_the_end_of_the_minute() -> None:
    model = {"model": "m", "requests": 1, "input_tokens": 1, "max_output_tokens": 1, "max_cost": 1.0, "currency": "USD",
             "engines": 1, "eta": NOW.timestamp() + 3}  # fmt: skip
    estimate = {**model, "unfit_lines": 0, "models": [model], "no_eta": None}
    file: Any = SimpleNamespace(file_id=uuid4(), filename="f", bytes=1, lines=1, problems=[])
    shown = new_batch.view(file, estimate, NOW)  # at 14:16:02
    assert shown["models"][0]["ends"] == "14:17"
    assert {each["name"]: (each["value"], each["words"]) for each in shown["total"]}["Done by"] == (
        "14:17",
        "in 3\u00a0s",
    )
    ending = {"name": "b", "refused": True, "ends_near_request": 0, "renewed_at": None}
    assert new_batch.view(file, estimate | {"budget": ending}, NOW)["budget"] == "Budget b refuses new batches."


@pytest.mark.parametrize(("waiting", "value"), [(None, "139"), (Link("engine_down", "no engine", blocks=True), "–")])
def test_the_pace_of_the_pool_is_not_that_of_a_batch_of_which_nothing_runs(waiting: Link | None, value: str) -> None:
    why = SimpleNamespace(waiting=waiting, estimate=SimpleNamespace(tokens_per_second=139.0, share=1.0))
    seen: Any = SimpleNamespace(row=a_batch(ok=0, failed=0), why=why)
    assert batch._pace(seen).value == value


def test_an_engine_that_is_away_and_none_that_serves_are_no_faults_and_have_lanes_of_their_own() -> None:
    lanes = [signs.lane(code)[0] for code in ("no_engine", "engine_down", "engine_starting", "closed_unknown")]
    assert lanes == ["No engine", "Engine away", "Engine away", "Engine fault"]
    assert set(lanes) <= set(signs.LANES)
