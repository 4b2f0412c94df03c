"""OpenAI's client makes batches of files as it does at OpenAI, on a whole installation with a fake engine.

What the clients and the service do: `openai-batch-api.md` among the project's reference texts; its sections are named by §.
"""

import re
from typing import Any
from uuid import UUID

import openai
import pytest
from openai import OpenAI

from testing.waiting import wait_for
from tests.clients.batches import (
    ENDLESS,
    REFUSAL,
    REFUSED,
    created,
    ended,
    line,
    lines_of,
    shown,
    uploaded,
)
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account

pytestmark = pytest.mark.slow

FILE_ID = re.compile(r"file-[0-9A-Za-z]{22}")
LINE_ID = re.compile(r"batch_req_[0-9a-f]{32}")


def parts(given: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Those fields that `like` has; a KeyError if one is missing. We may tell more than OpenAI."""
    return {key: parts(given[key], value) if isinstance(value, dict) else given[key] for key, value in like.items()}


def test_a_batch_object_has_every_field_and_what_does_not_apply_is_null(client: OpenAI) -> None:  # §5
    file_id = uploaded(client, line(0), line(1, REFUSED))
    batch = ended(client, created(client, file_id, metadata={"customer_id": "user_1"}))
    found = shown(client, f"batches/{batch.id}")
    usage = {"input_tokens": found["usage"]["input_tokens"], "output_tokens": found["usage"]["output_tokens"]}
    golden = {
        "id": batch.id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "model": MODEL,
        "errors": None,
        "input_file_id": file_id,
        "completion_window": "24h",
        "status": "completed",
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at,
        "in_progress_at": batch.in_progress_at,
        "expires_at": batch.created_at + 86_400,
        "finalizing_at": batch.finalizing_at,
        "completed_at": batch.completed_at,
        "failed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "request_counts": {"total": 2, "completed": 1, "failed": 1},
        "usage": usage
        | {
            "input_tokens_details": {"cached_tokens": found["usage"]["input_tokens_details"]["cached_tokens"]},
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        },
        "metadata": {"customer_id": "user_1"},
    }
    assert parts(found, golden) == golden
    assert re.fullmatch(r"batch_[0-9a-f]{32}", batch.id)
    assert all(FILE_ID.fullmatch(each or "") for each in (file_id, batch.output_file_id, batch.error_file_id))
    times = [found[f"{name}_at"] for name in ("created", "in_progress", "finalizing", "completed")]
    assert all(type(each) is int for each in times)
    assert times == sorted(times)


def test_an_output_line_and_an_error_line_have_every_field(client: OpenAI) -> None:  # §7
    batch = ended(client, created(client, uploaded(client, line(0), line(1, REFUSED))))
    ((good,), (bad,)) = (lines_of(client, each) for each in (batch.output_file_id, batch.error_file_id))
    body = good["response"].pop("body")
    assert (body["object"], body["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    assert {"id", "object", "created", "model", "choices", "usage"} <= set(body)
    said = bad["response"].pop("body")["error"]
    assert REFUSAL in said.pop("message")
    assert {"type", "param", "code"} <= set(said)
    assert said["type"] == "invalid_request_error"
    for each, n, status in ((good, 0, 200), (bad, 1, 400)):
        assert LINE_ID.fullmatch(each["id"])
        response = {"status_code": status, "request_id": each["response"]["request_id"]}
        # What an engine refused was answered: the text is in the body, and `error` is null as it is of an answer.
        assert each == {"id": each["id"], "custom_id": f"request-{n}", "response": response, "error": None}
        assert each["response"]["request_id"]


def test_counts_are_live_and_no_file_is_named_before_the_end(client: OpenAI) -> None:  # §5, §14
    batch = created(client, uploaded(client, line(0), line(1, ENDLESS)))
    assert batch.status in ("validating", "in_progress")

    def one_done() -> bool:
        nonlocal batch
        batch = client.batches.retrieve(batch.id)
        assert batch.request_counts
        return batch.request_counts.completed == 1

    wait_for(one_done, "one of two lines answered")
    assert batch.request_counts
    assert (batch.status, batch.request_counts.total, batch.request_counts.failed) == ("in_progress", 2, 0)
    assert (batch.output_file_id, batch.error_file_id, batch.finalizing_at) == (None, None, None)
    client.batches.cancel(batch.id)
    batch = ended(client, batch)
    assert [each["custom_id"] for each in lines_of(client, batch.output_file_id)] == ["request-0"]
    assert [each["custom_id"] for each in lines_of(client, batch.error_file_id)] == ["request-1"]


def test_other_windows_are_kept_to(client: OpenAI) -> None:  # §4: the client checks none
    batch = created(client, uploaded(client, line(0)), completion_window="1h")
    assert (batch.completion_window, batch.expires_at) == ("1h", batch.created_at + 3600)


def test_the_largest_metadata_come_back_as_they_were(client: OpenAI) -> None:  # §4
    metadata = {f"{n:064}": "v" * 512 for n in range(16)}
    batch = created(client, uploaded(client, line(0)), metadata=metadata)
    assert batch.metadata == client.batches.retrieve(batch.id).metadata == metadata


def test_every_batch_is_met_once_however_small_the_pages(client: OpenAI) -> None:  # §13
    file_id = uploaded(client, line(0))
    made = [created(client, file_id).id for _ in range(5)]
    pages = client.batches.list(limit=2).iter_pages()
    ids = [[each.id for each in page.data] for page in pages]
    assert all(ids)  # the last page said that it was
    assert len(ids) > 1
    found = [each for page in ids for each in page]
    assert len(found) == len(set(found)) >= 5
    assert found[:5] == made[::-1]
    assert [page.data for page in client.batches.list(after=found[-1]).iter_pages()] == [[]]


def test_batches_are_listed_page_by_page(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    made = [created(client, file_id).id for _ in range(3)]
    first = client.batches.list(limit=2)
    assert ([each.id for each in first.data], first.has_more) == ([made[2], made[1]], True)
    assert [each.id for each in client.batches.list(limit=1, after=made[1]).data] == [made[0]]


def test_the_same_key_is_the_same_batch(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    key = f"key of {file_id}"
    pairs = [("a", "1"), ("b", "2")]
    same = [dict(pairs), dict(pairs[::-1]), dict(pairs)]
    ids = {created(client, file_id, extra_body={"idempotency_key": key}, metadata=each).id for each in same}
    assert len(ids) == 1
    other = uploaded(client, line(7))
    with pytest.raises(openai.UnprocessableEntityError):
        created(client, other, extra_headers={"Idempotency-Key": key})
    assert created(client, file_id).id != created(client, file_id).id  # the client sends no key of its own


def test_workers_ai_polls_it_by_either_id(client: OpenAI, account: Account) -> None:
    batch = ended(client, created(client, uploaded(client, line(0))))
    for request_id in (batch.id, str(UUID(batch.id.removeprefix("batch_")))):
        answer = account.client.post(account.run(), json={"request_id": request_id})
        assert answer.json()["result"]["responses"][0]["external_reference"] == "request-0"


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/completions", {"prompt": "hello", "max_tokens": 4}),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 4}),
        ("/v1/embeddings", {"model": EMBEDDER, "input": "hello"}),
    ],
)
def test_other_routes_are_served_too(client: OpenAI, endpoint: str, body: dict[str, Any]) -> None:
    lines = [line(n, url=endpoint, body={"model": MODEL} | body) for n in range(3)]
    batch = ended(client, created(client, uploaded(client, *lines), endpoint=endpoint))
    assert batch.request_counts
    assert batch.request_counts.completed == 3, lines_of(client, batch.error_file_id)
    assert len(lines_of(client, batch.output_file_id)) == 3


def test_a_batch_that_depends_on_another_starts_by_itself_when_that_has_ended(client: OpenAI) -> None:
    first = created(client, uploaded(client, *(line(n) for n in range(2_000))))
    client.post(f"/batches/{first.id}/pause", cast_to=object)
    later = created(client, uploaded(client, line(1)), extra_body={"depends_on": [first.id]})
    free = ended(client, created(client, uploaded(client, line(2))))
    assert (free.status, client.batches.retrieve(later.id).status) == ("completed", "paused")
    client.post(f"/batches/{first.id}/resume", cast_to=object)
    assert ended(client, later).status == "completed"
    assert client.batches.retrieve(first.id).status == "completed"


def test_stages_behind_a_batch_end_in_one_file_with_a_line_for_each_of_its_lines(client: OpenAI) -> None:
    asks = {"messages": [{"role": "user", "content": "again {{text}}"}]}
    stages = [{"id": "again", "model": MODEL, "body": asks, "when": 'text != "echo: line 1"'}]
    batch = created(client, uploaded(client, *(line(n) for n in range(3))), extra_body={"then": stages})
    assert batch.to_dict()["pipeline"]
    batch = ended(client, batch)
    assert batch.request_counts
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    found = {
        each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"]
        for each in lines_of(client, batch.output_file_id)
    }
    assert found == {
        "request-0": "echo: again echo: line 0",
        "request-1": "echo: line 1",
        "request-2": "echo: again echo: line 2",
    }
