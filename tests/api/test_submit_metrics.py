"""Claims about the counter of submits: an error of the caller is not one of ours."""

import httpx
import psycopg
import pytest

from app.api.submit_metrics import SUBMITS
from tests.api.support import SUBMIT

ONE = {"requests": [{"prompt": "hi"}]}


def counted() -> dict[str, float]:
    return {outcome: SUBMITS.labels(outcome)._value.get() for outcome in ("accepted", "refused", "failed")}


async def counts_as(outcome: str, client: httpx.AsyncClient, status: int, url: str = SUBMIT, **body: object) -> None:
    before = counted()
    assert (await client.post(url, json=body or ONE)).status_code == status
    assert counted() == {**before, outcome: before[outcome] + 1}


async def test_a_queued_batch_is_accepted(client: httpx.AsyncClient) -> None:
    await counts_as("accepted", client, 200)


async def test_what_the_caller_can_correct_is_refused_on_both_kinds_of_routes(client: httpx.AsyncClient) -> None:
    await counts_as("refused", client, 400, requests=[])
    await counts_as("refused", client, 400, url="/v1/batches", endpoint="/v1/chat/completions")


async def test_a_database_that_is_away_and_a_bug_are_failures(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, status in ((TimeoutError(), 500), (psycopg.OperationalError("gone"), 503)):

        async def broken(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("app.batches.submit.commit", broken)
        await counts_as("failed", client, status)


async def test_a_synchronous_request_and_a_poll_are_no_submits(client: httpx.AsyncClient) -> None:
    before = counted()
    await client.post(SUBMIT.partition("?")[0], json={"prompt": "hi"})
    await client.post(SUBMIT.partition("?")[0], json={"request_id": "00000000-0000-4000-8000-000000000000"})
    assert counted() == before
