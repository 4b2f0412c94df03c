"""The errors that OpenAI's client gets for refused calls and for batches that fail at once. § as in `test_openai_batches.py`."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from testing.waiting import LIMIT_SECONDS
from tests.clients.batches import ENDLESS, created, ended, line, lines_of, shown, uploaded, watched
from tests.system.stack import MODEL

pytestmark = pytest.mark.slow

OTHER = "@cf/moonshotai/kimi-k2.6"
BAD = [
    ("nonsense", "invalid_json_line", "This line is not parseable as valid JSON: a word without quotes", None),
    (
        line(1) | {"custom_id": None},
        "missing_required_parameter",
        "Missing required parameter: 'custom_id'.",
        "custom_id",
    ),
    (line(1) | {"method": None}, "missing_required_parameter", "Missing required parameter: 'method'.", "method"),
    (line(1) | {"url": None}, "missing_required_parameter", "Missing required parameter: 'url'.", "url"),
    (line(1) | {"body": None}, "missing_required_parameter", "Missing required parameter: 'body'.", "body"),
    (line(1, url="/v1/completions"), "invalid_url", "does not match the batch endpoint", "url"),
    (line(1, method="GET"), "invalid_value", "only 'POST'", "method"),
    (line(0), "duplicate_custom_id", "The custom_id 'request-0'", "custom_id"),
    (line(1, body={"messages": []}), "missing_required_parameter", "'body.model'", "body.model"),
    (line(1, body={"model": MODEL}), "missing_required_parameter", "'body.messages'", "body.messages"),
    (line(1, body={"model": 1, "messages": []}), "invalid_type", "a string, but got a number instead", "body.model"),
    (line(1, body={"model": "nosuch", "messages": []}), "model_not_found", "'nosuch'", "body.model"),
    (line(1, body=line(1)["body"] | {"model": OTHER}), "mismatched_model", f"'{OTHER}'", "body.model"),
    (line(1, body=line(1)["body"] | {"stream": True}), "streaming_unsupported", "Chat Completions:", "body.stream"),
]


@pytest.mark.parametrize(("bad", "code", "message", "param"), BAD, ids=[f"{each[1]} {each[3]}" for each in BAD])
def test_a_bad_line_fails_the_batch_and_is_named(
    client: OpenAI, bad: Any, code: str, message: str, param: str | None
) -> None:
    file_id = uploaded(client, line(0), "", bad, line(2))
    if code not in ("invalid_url", "mismatched_model"):  # which depend on what the batch will ask for
        assert "line 3" in (client.files.retrieve(file_id).status_details or "")
    batch = created(client, file_id)
    assert (batch.status, batch.output_file_id, batch.error_file_id) == ("failed", None, None)
    assert batch.failed_at
    assert batch.errors
    assert batch.errors.object == "list"
    assert batch.errors.data
    assert set(shown(client, f"batches/{batch.id}")["errors"]["data"][0]) == {"code", "line", "message", "param"}
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == (code, 3, param)
    assert message in (error.message or "")


NONSENSE = "This line is not parseable as valid JSON: a word without quotes; put strings in double quotes (column 1)"
HOT = {"temperature": "hot"}
TOO_HOT = "line 2: Invalid value for 'temperature': must be a number between 0 and 5, got 'hot'."


def test_what_is_wrong_in_a_body_fails_its_line_and_the_batch_completes(client: OpenAI) -> None:
    bad = [line(1, body=line(1)["body"] | HOT), line(2, body=line(2)["body"] | {"n": 99})]
    file_id = uploaded(client, line(0), *bad, line(3))
    details = client.files.retrieve(file_id).status_details or ""
    assert details.startswith("line 2: Invalid value for 'body.temperature'")
    assert details.endswith(", and 1 more. In a batch of this file only such lines fail.")
    batch = ended(client, created(client, file_id))
    assert (batch.status, batch.errors) == ("completed", None)
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 2, 2)
    assert [each["custom_id"] for each in lines_of(client, batch.output_file_id)] == ["request-0", "request-3"]
    failed = lines_of(client, batch.error_file_id)
    assert [each["custom_id"] for each in failed] == ["request-1", "request-2"]
    assert (failed[0]["error"], failed[0]["response"]["status_code"]) == (None, 400)
    assert failed[0]["response"]["body"]["error"] == {
        "message": TOO_HOT, "type": "invalid_request_error", "param": "temperature", "code": "invalid_value"
    }  # fmt: skip


def test_a_batch_of_only_such_lines_completes_without_an_output_file(client: OpenAI) -> None:
    batch = ended(client, created(client, uploaded(client, line(0, body=line(0)["body"] | HOT))))
    assert (batch.status, batch.output_file_id) == ("completed", None)
    assert len(lines_of(client, batch.error_file_id)) == 1


def test_where_a_line_fails_the_batch_what_would_fail_alone_is_not_named(client: OpenAI) -> None:
    hot = line(0, body=line(0)["body"] | HOT)
    batch = created(client, uploaded(client, hot, "nonsense", line(0)))
    assert batch.errors
    assert [(each.line, each.code) for each in batch.errors.data or ()] == [
        (2, "invalid_json_line"), (3, "duplicate_custom_id")
    ]  # fmt: skip


def test_all_bad_lines_are_named(client: OpenAI) -> None:
    batch = created(client, uploaded(client, line(0), *("x" for _ in range(3)), line(0)))
    assert batch.errors
    assert [(each.line, each.code) for each in batch.errors.data or ()] == [
        (2, "invalid_json_line"), (3, "invalid_json_line"), (4, "invalid_json_line"), (5, "duplicate_custom_id")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "The file is empty; it needs a request in each line"),
        (b"\n\n", "The file has only empty lines; it needs a request in each line"),
        (b"nonsense\nmore", "Must be .jsonl. The file is plain text, such as CSV; put a JSON object on each line"),
    ],
)
def test_what_is_no_batch_file_is_refused_at_once_and_what_it_is_is_said(
    client: OpenAI, content: bytes, problem: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.files.create(file=("input.jsonl", content), purpose="batch")
    assert refusal.value.body == {
        "message": f"Invalid file format for Batch API. {problem}",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


def test_other_refusals_name_the_field(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    with pytest.raises(openai.BadRequestError) as refusal:
        created(client, file_id, endpoint="/v1/score")
    assert (refusal.value.code, refusal.value.param) == ("invalid_value", "endpoint")
    with pytest.raises(openai.BadRequestError) as refusal:
        created(client, file_id, metadata={"tags": ["a"]})
    assert (refusal.value.code, refusal.value.param) == ("invalid_type", "metadata.tags")
    assert refusal.value.body == {
        "message": "Invalid type for 'metadata.tags': expected a string, but got an array instead.",
        "type": "invalid_request_error",
        "param": "metadata.tags",
        "code": "invalid_type",
    }
    with pytest.raises(openai.BadRequestError, match="completion_window"):
        created(client, file_id, completion_window="soon")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("x", b"{}"), purpose="fine-tune")
    for call in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError, match="No batch found with id"):
            call("batch_nonsense")


def test_a_file_that_is_not_there_fails_the_batch(client: OpenAI) -> None:
    batch = created(client, "file-doesnotexist")
    assert batch.status == "failed"
    assert batch.errors
    assert batch.errors.data
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == ("invalid_request", None, "file_id")
    assert (error.message or "").startswith("Cannot find file file-doesnotexist")


TOO_MUCH = [
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: ""}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata"),
    ({"output_expires_after": {"anchor": "created_at", "seconds": 3599}}, "output_expires_after"),
    ({"output_expires_after": {"anchor": "created_at", "seconds": 2_592_001}}, "output_expires_after"),
]


@pytest.mark.parametrize(("more", "field"), TOO_MUCH, ids=["pairs", "key", "value", "too short", "too long"])
def test_what_is_beyond_the_bounds_is_refused(client: OpenAI, more: dict[str, Any], field: str) -> None:  # §4
    with pytest.raises(openai.BadRequestError, match=field):
        created(client, uploaded(client, line(0)), **more)


@pytest.mark.parametrize("missing", ["input_file_id", "endpoint", "completion_window"])
def test_what_a_create_must_have_is_named(client: OpenAI, missing: str) -> None:  # §4
    whole = {"input_file_id": "file-x", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    with pytest.raises(openai.BadRequestError, match=missing) as refusal:
        client.post("/batches", body={key: whole[key] for key in whole if key != missing}, cast_to=object)
    assert refusal.value.param == missing


def completed(client: OpenAI) -> Batch:
    return ended(client, created(client, uploaded(client, line(0))))


def expired(client: OpenAI) -> Batch:
    return ended(client, created(client, uploaded(client, line(0, ENDLESS)), completion_window="1s"))


def failed(client: OpenAI) -> Batch:
    return created(client, uploaded(client, line(0), "nonsense"))


@pytest.mark.parametrize("end", [completed, expired, failed], ids=lambda end: end.__name__)
def test_a_cancel_after_the_end_is_a_conflict_and_called_once(client: OpenAI, end: Callable[[OpenAI], Batch]) -> None:
    batch = end(client)  # §6.1, §13
    assert batch.status == end.__name__
    requests: list[Any] = []
    with pytest.raises(openai.ConflictError) as refusal:
        watched(client, requests).batches.cancel(batch.id)
    # A client tries every 409 three times unless it is told that this one is final.
    assert refusal.value.response.headers["x-should-retry"] == "false"
    assert len(requests) == 1
    assert refusal.value.body == {
        "message": f"Cannot cancel a batch with status '{batch.status}'.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    assert client.batches.retrieve(batch.id).status == batch.status


def test_an_error_has_all_four_fields_and_the_id_of_its_request(client: OpenAI) -> None:  # §13
    calls: list[Callable[[OpenAI], Any]] = [
        lambda client: client.batches.retrieve("batch_nonsense"),
        lambda client: client.files.content("file-nonsense"),
        lambda client: created(client, "file-x", endpoint="/v1/score"),
        lambda client: client.with_options(api_key="wrong").batches.list(),
        lambda client: client.batches.list(limit=0),
        lambda client: client.files.list(limit=10_001),
    ]
    for call in calls:
        requests: list[Any] = []
        with pytest.raises(openai.APIStatusError) as refusal:
            call(watched(client, requests, timeout=LIMIT_SECONDS))
        error = refusal.value
        assert isinstance(error.body, dict)
        assert set(error.body) == {"message", "type", "param", "code"}, error.body
        assert error.request_id
        assert error.request_id == error.response.headers["x-request-id"]
        assert len(requests) == 1, error
