"""OpenAI's client makes batches of files as it does at OpenAI, on a whole installation with a fake engine."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from tests.clients.conftest import EMBEDDER
from tests.system.stack import ACCOUNT, MODEL, Stack

SECONDS = 30


@pytest.fixture(params=["/v1", f"/client/v4/accounts/{ACCOUNT}/ai/v1"])
def client(request: pytest.FixtureRequest, base_url: str, api_key: str) -> Iterator[OpenAI]:
    with OpenAI(api_key=api_key, base_url=f"{base_url}{request.param}", max_retries=0) as client:
        yield client


def line(n: int, **changes: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"line {n}"}]}
    return {"custom_id": f"request-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body} | changes


def uploaded(client: OpenAI, *lines: Any) -> str:
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return client.files.create(file=("input.jsonl", content.encode()), purpose="batch").id


def created(client: OpenAI, file_id: str, endpoint: str = "/v1/chat/completions", **more: Any) -> Batch:
    return client.batches.create(input_file_id=file_id, endpoint=endpoint, completion_window="24h", **more)  # type: ignore[arg-type]


def ended(client: OpenAI, batch: Batch) -> Batch:
    deadline = time.monotonic() + SECONDS
    while batch.status not in ("failed", "completed", "expired", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client: OpenAI, file_id: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


def test_a_file_becomes_a_batch_and_the_batch_a_file(client: OpenAI) -> None:
    file_id = uploaded(client, *(line(n) for n in range(20)))
    made = created(client, file_id, metadata={"team": "search"})
    assert (made.object, made.input_file_id, made.metadata) == ("batch", file_id, {"team": "search"})
    assert made.expires_at == made.created_at + 86_400
    batch = ended(client, made)
    assert (batch.status, batch.error_file_id, batch.errors) == ("completed", None, None)
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (20, 20, 0)
    assert batch.usage
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens > 0
    assert batch.completed_at
    assert batch.output_file_id
    found = lines_of(client, batch.output_file_id)
    assert {each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in found} == {
        f"request-{n}": f"echo: line {n}" for n in range(20)
    }
    assert all(each["error"] is None and each["response"]["status_code"] == 200 for each in found)
    assert len({each["id"] for each in found}) == 20
    shown = client.files.retrieve(batch.output_file_id)
    assert (shown.purpose, shown.status) == ("batch_output", "processed")
    assert shown.bytes == len(client.files.content(batch.output_file_id).content)


def test_files_are_listed_read_and_deleted(client: OpenAI) -> None:
    made = [uploaded(client, line(n)) for n in range(3)]
    page = client.files.list(limit=2, purpose="batch")
    assert [each.id for each in page.data] == [made[2], made[1]]
    assert page.has_more
    assert client.files.list(limit=2, after=made[1]).data[0].id == made[0]
    assert json.loads(client.files.content(made[0]).text) == line(0)
    assert client.files.wait_for_processing(made[0]).status == "processed"
    gone = client.files.delete(made[0])
    assert (gone.id, gone.deleted) == (made[0], True)
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            call(made[0])


BAD = [
    ("nonsense", "invalid_json_line", "This line is not parseable as valid JSON.", None),
    (
        line(1) | {"custom_id": None},
        "missing_required_parameter",
        "Missing required parameter: 'custom_id'.",
        "custom_id",
    ),
    (line(1, url="/v1/completions"), "invalid_url", "does not match the batch endpoint", "url"),
    (line(1, method="GET"), "invalid_value", "only 'POST'", "method"),
    (line(0), "duplicate_custom_id", "The custom_id 'request-0'", "custom_id"),
    (line(1, body={"messages": []}), "missing_required_parameter", "'model'", "body.model"),
    (line(1, body={"model": MODEL}), "missing_required_parameter", "'messages'", "body.messages"),
    (line(1, body={"model": "nosuch", "messages": []}), "model_not_found", "'nosuch'", "body.model"),
    (line(1, body=line(1)["body"] | {"stream": True}), "streaming_unsupported", "Chat Completions:", "body.stream"),
    (line(1, body=line(1)["body"] | {"temperature": "hot"}), "invalid_value", "temperature", "body.temperature"),
]


@pytest.mark.parametrize(("bad", "code", "message", "param"), BAD, ids=[f"{each[1]} {each[3]}" for each in BAD])
def test_a_bad_line_fails_the_batch_and_is_named(
    client: OpenAI, bad: Any, code: str, message: str, param: str | None
) -> None:
    file_id = uploaded(client, line(0), "", bad, line(2))
    assert "line 3" in (client.files.retrieve(file_id).status_details or "") or code == "invalid_url"
    batch = created(client, file_id)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at
    assert batch.errors
    assert batch.errors.data
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == (code, 3, param)
    assert message in (error.message or "")


def test_all_bad_lines_are_named(client: OpenAI) -> None:
    batch = created(client, uploaded(client, line(0), *("x" for _ in range(3)), line(0)))
    assert batch.errors
    assert [(each.line, each.code) for each in batch.errors.data or ()] == [
        (2, "invalid_json_line"), (3, "invalid_json_line"), (4, "invalid_json_line"), (5, "duplicate_custom_id")
    ]  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"\n\n", b"nonsense\nmore"])
def test_what_is_no_batch_file_is_refused_at_once(client: OpenAI, content: bytes) -> None:
    with pytest.raises(openai.BadRequestError, match="Invalid file format for Batch API"):
        client.files.create(file=("input.jsonl", content), purpose="batch")


def test_other_refusals_name_the_field(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    with pytest.raises(openai.BadRequestError) as refusal:
        created(client, file_id, endpoint="/v1/score")
    assert (refusal.value.code, refusal.value.param) == ("invalid_value", "endpoint")
    with pytest.raises(openai.BadRequestError) as refusal:
        created(client, file_id, metadata={"tags": ["a"]})
    assert (refusal.value.code, refusal.value.param) == ("invalid_type", "metadata.tags")
    assert "expected a string, but got an array instead" in refusal.value.message
    with pytest.raises(openai.BadRequestError, match="completion_window"):
        client.batches.create(input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="soon")  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("x", b"{}"), purpose="assistants")
    for call in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError, match="No batch found with id"):
            call("batch_nonsense")


def test_a_file_that_is_not_there_fails_the_batch(client: OpenAI) -> None:
    batch = created(client, "file-doesnotexist")
    assert batch.status == "failed"
    assert batch.errors
    assert batch.errors.data
    assert (batch.errors.data[0].code, batch.errors.data[0].param) == ("invalid_request", "file_id")


def test_a_batch_is_cancelled_once_and_what_is_done_is_done(client: OpenAI) -> None:
    batch = created(client, uploaded(client, *(line(n) for n in range(400))))
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status in ("cancelling", "cancelled")
    assert cancelled.cancelling_at
    batch = ended(client, batch)
    assert batch.status == "cancelled"
    assert client.batches.cancel(batch.id).status == "cancelled"
    assert batch.error_file_id
    done = lines_of(client, batch.output_file_id) if batch.output_file_id else []
    rest = lines_of(client, batch.error_file_id)
    assert len(done) + len(rest) == 400
    assert {each["error"]["code"] for each in rest} == {"batch_cancelled"}
    assert all(each["response"] is None for each in rest)
    whole = ended(client, created(client, uploaded(client, line(0))))
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(whole.id)


def test_batches_are_listed_page_by_page(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    made = [created(client, file_id).id for _ in range(3)]
    first = client.batches.list(limit=2)
    assert ([each.id for each in first.data], first.has_more) == ([made[2], made[1]], True)
    assert [each.id for each in client.batches.list(limit=1, after=made[1]).data] == [made[0]]


def test_the_same_key_is_the_same_batch(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    key = f"key of {file_id}"
    assert len({created(client, file_id, extra_body={"idempotency_key": key}).id for _ in range(3)}) == 1
    other = uploaded(client, line(7))
    with pytest.raises(openai.UnprocessableEntityError):
        created(client, other, extra_headers={"Idempotency-Key": key})


def test_workers_ai_polls_it_by_either_id(client: OpenAI, stack: Stack) -> None:
    batch = ended(client, created(client, uploaded(client, line(0))))
    for request_id in (batch.id, str(UUID(batch.id.removeprefix("batch_")))):
        answer = stack.client.post(f"/client/v4/accounts/{ACCOUNT}/ai/run/{MODEL}", json={"request_id": request_id})
        assert answer.json()["result"]["responses"][0]["external_reference"] == "request-0"


def test_curl_uploads_too_in_any_order(client: OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text("\n".join(json.dumps(line(n)) for n in range(5000)))  # many blocks of a body
    command = ["curl", "-s", f"{client.base_url}files", "-H", f"Authorization: Bearer {client.api_key}"]
    purpose, content = ["-F", "purpose=batch"], ["-F", f"file=@{file}"]
    for form in ([*purpose, *content], [*content, *purpose]):
        made = json.loads(subprocess.run([*command, *form], capture_output=True, check=True).stdout)
        assert (made["object"], made["bytes"], made["filename"]) == ("file", file.stat().st_size, "input.jsonl")
    for form in (content, ["-F", "purpose=assistants", *content], purpose):
        refused = json.loads(subprocess.run([*command, *form], capture_output=True, check=True).stdout)
        assert refused["error"]["message"].startswith(("purpose:", "file:"))


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
    assert batch.request_counts.completed == 3, lines_of(client, batch.error_file_id or "")
    assert batch.output_file_id
    assert len(lines_of(client, batch.output_file_id)) == 3
