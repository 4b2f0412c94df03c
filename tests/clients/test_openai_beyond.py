"""Features beyond OpenAI's API, used with its client through `extra_body` and paths. None of them breaks a plain client."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from testing.waiting import wait_for
from tests.clients.batches import ENDLESS, REFUSED, created, ended, line, lines_of, shown, uploaded
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Stack

pytestmark = pytest.mark.slow

COMPLETE = "x-slackwater-complete"


def extra(batch: Batch, name: str) -> Any:
    """A field that the client does not know."""
    return (batch.model_extra or {})[name]


def called(client: OpenAI, batch_id: str, verb: str) -> Batch:
    return client.post(f"/batches/{batch_id}/{verb}", cast_to=Batch)


def content(client: OpenAI, file_id: str, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
    raw = client.files.with_raw_response.content(file_id, extra_headers=headers, extra_query=query)
    return raw.http_response


def test_what_has_failed_is_run_again_and_nothing_else(client: OpenAI) -> None:
    file_id = uploaded(client, *(line(n) for n in range(3)), line(3, REFUSED))
    batch = ended(client, created(client, file_id))
    assert batch.request_counts
    assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 1)
    before = client.files.content(batch.output_file_id or "").content
    again = called(client, batch.id, "retry")
    assert again.status == "in_progress"
    again = ended(client, again)
    assert again.output_file_id not in (None, batch.output_file_id)
    assert client.files.content(again.output_file_id or "").content == before
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(batch.output_file_id or "")
    assert [each["custom_id"] for each in lines_of(client, again.error_file_id)] == ["request-3"]
    whole = ended(client, created(client, uploaded(client, line(0))))
    with pytest.raises(openai.ConflictError, match="Cannot retry a batch with status 'completed'"):
        called(client, whole.id, "retry")


def test_a_paused_batch_starts_nothing_until_it_is_resumed(client: OpenAI) -> None:
    held = created(client, uploaded(client, line(0, ENDLESS), *(line(n) for n in range(1, 40))))
    assert called(client, held.id, "pause").status == "paused"
    assert client.batches.retrieve(held.id).status == "paused"
    assert called(client, held.id, "pause").status == "paused"
    assert called(client, held.id, "resume").status == "in_progress"
    assert client.batches.cancel(held.id).status in ("cancelling", "cancelled")
    assert ended(client, held).status == "cancelled"
    with pytest.raises(openai.ConflictError, match="Cannot pause a batch with status 'cancelled'"):
        called(client, held.id, "pause")


def test_several_models_and_endpoints_go_in_one_file(client: OpenAI) -> None:
    embed = line(1, url="/v1/embeddings", body={"model": EMBEDDER, "input": "hello"})
    complete = line(2, url="/v1/completions", body={"model": MODEL, "prompt": "hello", "max_tokens": 4})
    refuse = line(3, REFUSED)
    file_id = uploaded(client, line(0), embed, complete, refuse)
    batch = ended(client, created(client, file_id, extra_body={"mixed": True}))
    answers = {each["custom_id"]: each["response"]["body"] for each in lines_of(client, batch.output_file_id)}
    assert {name: answer["object"] for name, answer in answers.items()} == {
        "request-0": "chat.completion",
        "request-1": "list",
        "request-2": "text_completion",
    }
    assert answers["request-1"]["usage"]["cost"] > 0  # by the price of its own model
    again = ended(client, called(client, batch.id, "retry"))
    assert again.request_counts
    assert (again.request_counts.completed, again.request_counts.failed) == (3, 1)
    plain = ended(client, created(client, file_id))
    assert plain.errors
    assert [each.code for each in plain.errors.data or []] == ["invalid_url", "invalid_url"]


def test_of_a_lenient_batch_only_the_bad_lines_fail(client: OpenAI) -> None:
    bad = [
        "not json",
        line(1, body={"model": MODEL}),
        line(0),
        line(4, body={"model": "no-such-model", "messages": []}),
    ]
    file_id = uploaded(client, line(0), *bad, line(5))
    batch = ended(client, created(client, file_id, extra_body={"validation": "lenient"}))
    assert batch.request_counts
    counts = batch.request_counts
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 6, 2, 4)
    errors = [(each["custom_id"], each["response"]) for each in lines_of(client, batch.error_file_id)]
    assert {response["status_code"] for _, response in errors} == {400}
    told = [(custom_id, response["body"]["error"]) for custom_id, response in errors]
    assert [(custom_id, error["code"], error["param"]) for custom_id, error in told] == [
        (None, "invalid_json_line", None),
        ("request-1", "missing_required_parameter", "body.messages"),
        ("request-0", "duplicate_custom_id", "custom_id"),
        ("request-4", "model_not_found", "body.model"),
    ]
    assert told[0][1]["message"].startswith("line 2: This line is not parseable as valid JSON: ")
    nothing = created(client, uploaded(client, line(0, body={"model": MODEL})), extra_body={"validation": "lenient"})
    assert nothing.status == "failed"
    with pytest.raises(openai.BadRequestError, match="validation: must be strict"):
        created(client, file_id, extra_body={"validation": "none"})


def test_requests_come_with_the_batch_itself(client: OpenAI) -> None:
    bodies = [line(n)["body"] for n in range(3)]
    requests = [{"custom_id": f"request-{n}", "body": body} for n, body in enumerate(bodies)]
    batch = ended(client, created(client, "", extra_body={"requests": requests}))
    assert {each["custom_id"] for each in lines_of(client, batch.output_file_id)} == {f"request-{n}" for n in range(3)}
    assert [each["body"] for each in lines_of(client, batch.input_file_id)] == bodies
    bad = created(client, "", extra_body={"requests": [{"custom_id": "a", "body": {}}]})
    assert bad.errors
    assert [(each.line, each.param) for each in bad.errors.data or []] == [(1, "body.model")]
    for wrong in ({"requests": []}, {"requests": "x"}, {"requests": requests, "input_file_id": "file-1"}):
        with pytest.raises(openai.BadRequestError, match=r"requests: (must be a non-empty list|send .* not both)"):
            created(client, "", extra_body=wrong)


def test_finished_lines_are_read_while_the_batch_runs_and_never_change(client: OpenAI) -> None:
    lines = [*(line(n) for n in range(5)), line(5, ENDLESS), *(line(n) for n in range(6, 9))]
    batch = created(client, uploaded(client, *lines), extra_body={"partial_results": True})
    assert batch.output_file_id
    assert batch.completed_at is None
    file_id = batch.output_file_id
    early = wait_for(lambda: (got := content(client, file_id)).content.count(b"\n") == 5 and got, "five lines")
    assert early.headers[COMPLETE] == "false"
    assert client.files.retrieve(file_id).bytes == len(early.content)
    rest = content(client, file_id, offset=3)
    assert rest.content == b"".join(early.content.splitlines(keepends=True)[3:])
    size = len(early.content)
    part = content(client, file_id, {"range": f"bytes={size - 10}-"})
    assert (part.status_code, part.content) == (206, early.content[-10:])
    assert part.headers["content-range"] == f"bytes {size - 10}-{size - 1}/*"
    with pytest.raises(openai.APIStatusError) as nothing:
        content(client, file_id, {"range": f"bytes={size}-"})
    assert nothing.value.status_code == 416
    client.batches.cancel(batch.id)
    batch = ended(client, batch)
    final = content(client, file_id)
    assert final.headers[COMPLETE] == "true"
    assert final.content.startswith(early.content)
    assert content(client, file_id, {"range": "bytes=-7"}).content == final.content[-7:]
    assert (
        content(client, file_id, {"range": "bytes=0-3"}).headers["content-range"] == f"bytes 0-3/{len(final.content)}"
    )
    plain = created(client, uploaded(client, line(0, ENDLESS)))
    assert plain.output_file_id is None
    client.batches.cancel(plain.id)


def test_an_uploaded_file_is_read_by_range_too(client: OpenAI) -> None:
    file_id = uploaded(client, line(0), line(1))
    whole = content(client, file_id)
    assert content(client, file_id, {"range": "bytes=5-9"}).content == whole.content[5:10]
    assert content(client, file_id, offset=1).content == whole.content.split(b"\n", 1)[1]


def test_a_batch_tells_how_far_it_is(client: OpenAI) -> None:
    batch = created(client, uploaded(client, line(0, ENDLESS), line(1)))
    wait_for(lambda: extra(client.batches.retrieve(batch.id), "progress") == 0.5)
    half = client.batches.retrieve(batch.id)
    assert half.request_counts
    assert (half.request_counts.model_extra or {})["in_progress"] == 1
    client.batches.cancel(batch.id)
    whole = ended(client, created(client, uploaded(client, line(0))))
    assert (extra(whole, "progress"), extra(whole, "eta")) == (1.0, None)


def test_a_file_tells_what_a_batch_of_it_would_take(client: OpenAI) -> None:
    embed = line(1, url="/v1/embeddings", body={"model": EMBEDDER, "input": "hello " * 50})
    file_id = uploaded(client, line(0), embed, line(2), "not json")
    told = shown(client, f"files/{file_id}/estimate")
    assert (told["object"], told["file_id"], told["requests"], told["unfit_lines"]) == ("file.estimate", file_id, 3, 1)
    by_model = {each["model"]: each for each in told["models"]}
    assert {name: each["requests"] for name, each in by_model.items()} == {MODEL: 2, EMBEDDER: 1}
    assert by_model[EMBEDDER]["max_cost"] == pytest.approx(by_model[EMBEDDER]["max_input_tokens"] * 1e-8)
    assert by_model[EMBEDDER]["max_output_tokens"] == 0
    assert by_model[MODEL]["max_output_tokens"] > 0
    assert all(each["engines"] == 1 for each in by_model.values())
    batch = ended(client, created(client, uploaded(client, line(0))))
    with pytest.raises(openai.BadRequestError, match="Only an uploaded batch file has an estimate"):
        client.get(f"/files/{batch.output_file_id}/estimate", cast_to=httpx.Response)


def test_sizes_of_output_files_are_counted_once(client: OpenAI, installation: Stack) -> None:
    batch = ended(client, created(client, uploaded(client, *(line(n) for n in range(4)))))
    assert batch.output_file_id
    size = client.files.retrieve(batch.output_file_id).bytes
    assert size == len(client.files.content(batch.output_file_id).content)
    kept = "select output_bytes from file_batch order by created_at desc limit 1"
    assert installation.query(kept) == [(size,)]
    assert client.files.retrieve(batch.output_file_id).bytes == size


def test_a_field_of_another_route_in_a_line_hurts_nobody(client: OpenAI) -> None:
    odd: list[dict[str, Any]] = [{"input": 5}, {"prompt": None}, {"input": {"id": "x"}}]
    lines = [line(n, body=line(n)["body"] | more) for n, more in enumerate(odd)]
    batch = ended(client, created(client, uploaded(client, *lines)))
    assert batch.request_counts
    assert batch.request_counts.total == 3


def test_the_same_key_with_other_terms_is_another_request(client: OpenAI) -> None:
    file_id = uploaded(client, line(0))
    key = {"Idempotency-Key": f"terms of {file_id}"}
    first = created(client, file_id, extra_headers=key)
    assert created(client, file_id, extra_headers=key).id == first.id
    for other in ({"metadata": {"a": "b"}}, {"completion_window": "1h"}, {"extra_body": {"partial_results": True}}):
        with pytest.raises(openai.UnprocessableEntityError):
            created(client, file_id, extra_headers=key, **other)


def test_inline_requests_under_a_known_key_leave_no_file(client: OpenAI) -> None:
    requests = [{"custom_id": "a", "body": line(0)["body"]}]
    key = {"Idempotency-Key": f"inline {uploaded(client, line(0))}"}
    first = created(client, "", extra_headers=key, extra_body={"requests": requests})
    before = {each.id for each in client.files.list(purpose="batch")}
    assert created(client, "", extra_headers=key, extra_body={"requests": requests}).id == first.id
    assert {each.id for each in client.files.list(purpose="batch")} == before


def test_a_batch_that_is_refused_for_its_file_is_an_event(client: OpenAI, installation: Stack) -> None:
    batch = created(client, uploaded(client, line(0), "not json"))
    assert batch.status == "failed"
    told = "select convert_from(data, 'UTF8') from event where kind = 'batch.failed' and batch_id is null order by event_id desc"
    data = json.loads(installation.query(told)[0][0])
    assert data["request_id"].replace("-", "") == batch.id.removeprefix("batch_")
    assert data["message"] == "The input file has errors; the batch lists them", "an event quotes nothing"


def test_an_offset_over_many_short_lines_is_quick(client: OpenAI) -> None:
    text = json.dumps(line(0)) + "\n" * 300_000
    file_id = client.files.create(file=("input.jsonl", text.encode()), purpose="batch").id
    assert content(client, file_id, offset=300_000).content == b""
    assert content(client, file_id, offset=299_998).content == b"\n\n"
