"""How batches of files end, and what their files contain then. § as in `test_openai_batches.py`."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from testing.waiting import wait_for
from tests.clients.batches import ENDLESS, REFUSED, created, ended, line, lines_of, shown, uploaded, watched
from tests.webhooks.support import receiving

pytestmark = pytest.mark.slow

NOT_RUN = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": None,
}


def never_run(found: dict[str, Any], code: str) -> bool:
    """Whether an error line says that its request was not run, and why."""
    error = found["error"]
    same = set(found) == {"id", "custom_id", "response", "error"} and set(error) == {"code", "message"}
    return same and found["response"] is None and error["code"] == code and NOT_RUN[code] in (None, error["message"])


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
    assert all(never_run(each, "batch_cancelled") for each in rest)
    assert len({each["custom_id"] for each in done + rest}) == 400
    found = shown(client, f"batches/{batch.id}")
    assert found["created_at"] <= found["cancelling_at"]
    assert found["cancelled_at"]
    assert [found[name] for name in ("completed_at", "expired_at", "failed_at", "errors")] == [None] * 4


def test_a_cancel_comes_with_a_json_content_type_and_no_body(client: OpenAI) -> None:  # §1, §13
    batch = created(client, uploaded(client, line(0, ENDLESS)))
    requests: list[Any] = []
    cancelled = watched(client, requests).batches.cancel(batch.id)
    (sent,) = requests
    assert (sent.headers["content-type"], sent.headers["content-length"]) == ("application/json", "0")
    batch = ended(client, cancelled)
    assert (batch.status, batch.output_file_id) == ("cancelled", None)
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (1, 0, 0)
    (rest,) = lines_of(client, batch.error_file_id)
    assert never_run(rest, "batch_cancelled")


def test_a_batch_whose_window_ends_keeps_what_is_done_and_names_the_rest(client: OpenAI) -> None:  # §5, §7
    lines = [line(0), line(1, ENDLESS), line(2, ENDLESS)]
    batch = ended(client, created(client, uploaded(client, *lines), completion_window="1s"))
    assert batch.status == "expired"
    found = shown(client, f"batches/{batch.id}")
    assert found["expires_at"] == found["created_at"] + 1 <= found["expired_at"]
    assert [found[name] for name in ("completed_at", "cancelled_at", "failed_at", "errors")] == [None] * 4
    done, rest = (lines_of(client, each) for each in (batch.output_file_id, batch.error_file_id))
    assert sorted(each["custom_id"] for each in done + rest) == ["request-0", "request-1", "request-2"]
    assert {"request-1", "request-2"} <= {each["custom_id"] for each in rest}  # 0 may be late on a busy machine
    assert all(never_run(each, "batch_expired") for each in rest)
    assert batch.request_counts
    assert (batch.request_counts.completed, batch.request_counts.failed) == (len(done), 0)  # expired is not failed


def test_a_batch_of_which_nothing_succeeded_is_completed(client: OpenAI) -> None:  # §5, §14
    batch = ended(client, created(client, uploaded(client, *(line(n, REFUSED) for n in range(3)))))
    assert (batch.status, batch.output_file_id) == ("completed", None)
    assert batch.completed_at
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (3, 0, 3)
    found = lines_of(client, batch.error_file_id)
    assert [(each["error"], each["response"]["status_code"]) for each in found] == [(None, 400)] * 3
    assert sorted(each["custom_id"] for each in found) == ["request-0", "request-1", "request-2"]


def test_the_end_of_a_batch_is_told_in_a_form_that_the_client_unwraps(client: OpenAI) -> None:  # §9.1
    with receiving() as receiver:
        # Only 3.x manages endpoints by methods of its own.
        wish = {"name": "n", "url": receiver.url, "event_types": ["batch.completed"]}
        made = client.post("/webhook_endpoints", body=wish, cast_to=dict[str, Any])
        try:
            batch = ended(client, created(client, uploaded(client, line(0))))
            told = wait_for(lambda: [each for each in receiver.requests if batch.id.encode() in each.body])
        finally:
            client.delete(f"/webhook_endpoints/{made['id']}", cast_to=dict[str, Any])
    event = client.webhooks.unwrap(told[0].body.decode(), told[0].headers, secret=made["signing_secret"])
    assert (event.object, event.type, event.data.id) == ("event", "batch.completed", batch.id)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(told[0].body.decode() + " ", told[0].headers, secret=made["signing_secret"])
