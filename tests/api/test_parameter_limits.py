"""Parameters and names at their limits: the answer is 4xx, never 5xx."""

import json

import httpx
import pytest

from tests.api.support import RUN

ACCOUNT = "/client/v4/accounts/acme"
LARGE = "11463541304758204628992"


@pytest.mark.parametrize(
    "url",
    [
        f"{ACCOUNT}/ai/models/search?page={LARGE}",
        f"{ACCOUNT}/events?queue_id=%00",
        f"{ACCOUNT}/events?limit={LARGE}",
        f"{ACCOUNT}/event_subscriptions/subscriptions?page={LARGE}",
        f"{ACCOUNT}/ai/batches?limit={LARGE}",
        f"/v1/batches?limit={LARGE}",
        f"/v1/files?limit={LARGE}",
        "/v1/files?purpose=%00",
        f"/v1/responses/batch_{'0' * 32}?starting_after={LARGE}",
    ],
)
async def test_a_parameter_beyond_its_bound_is_refused_by_its_name(client: httpx.AsyncClient, url: str) -> None:
    answer = await client.get(url)
    assert answer.status_code == 400, answer.text
    assert url.partition("?")[2].partition("=")[0] in answer.json()["errors"][0]["message"]


async def test_a_parameter_that_is_no_number_is_refused_in_our_words(client: httpx.AsyncClient) -> None:
    [error] = (await client.get(f"{ACCOUNT}/ai/batches?limit=abc")).json()["errors"]
    assert error["message"] == "limit: must be a whole number, not 'abc'"


@pytest.mark.parametrize("url", ["/v1/files", f"/v1/uploads/upload_{'0' * 32}/parts"])
async def test_a_boundary_that_is_too_long_is_refused(client: httpx.AsyncClient, url: str) -> None:
    kind = f"multipart/form-data; boundary={'x' * 300}"
    answer = await client.post(url, content=b"x", headers={"content-type": kind})
    assert answer.status_code == 400
    assert "boundary" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("window", ["２４h", "24ｈ", "٢٤h"])
async def test_a_window_of_other_digits_is_refused(client: httpx.AsyncClient, window: str) -> None:
    body = {"requests": [{"prompt": "hi"}]}
    url = f"{RUN}?queueRequest=true"
    assert (await client.post(url, params={"completion_window": window}, json=body)).status_code == 400
    wish = {"endpoint": "/v1/chat/completions", "completion_window": window, "input_file_id": "file-x"}
    assert (await client.post("/v1/batches", json=wish)).status_code == 400


@pytest.mark.parametrize(
    ("filename", "said"),
    [
        ("../../etc/passwd.jsonl", 'attachment; filename="passwd.jsonl"'),
        ("C:\\x\\a b.jsonl", 'attachment; filename="a b.jsonl"'),
        ("..", 'attachment; filename="file"'),
        ("é€.jsonl", "attachment; filename=\"__.jsonl\"; filename*=UTF-8''%C3%A9%E2%82%AC.jsonl"),
        (
            'a"; filename=b.exe',
            "attachment; filename=\"a_; filename=b.exe\"; filename*=UTF-8''a%22%3B%20filename%3Db.exe",
        ),
        ("a\r\nset-cookie: b", 'attachment; filename="aset-cookie: b"'),
    ],
)
async def test_a_download_is_named_by_a_base_name_in_the_form_of_rfc_6266(
    client: httpx.AsyncClient, filename: str, said: str
) -> None:
    wish = {"purpose": "user_data", "filename": filename, "bytes": 1, "mime_type": "text/plain"}
    upload = (await client.post("/v1/uploads", json=wish)).json()
    part = (await client.post(f"/v1/uploads/{upload['id']}/parts", files={"data": b"x"})).json()
    done = (await client.post(f"/v1/uploads/{upload['id']}/complete", json={"part_ids": [part["id"]]})).json()
    answer = await client.get(f"/v1/files/{done['file']['id']}/content")
    assert answer.headers["content-disposition"] == said


async def test_a_batch_refused_for_its_file_never_expires(client: httpx.AsyncClient) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    content = json.dumps({**line, "body": {"model": None}}).encode()
    file = (await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)})).json()
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": file["id"]}
    batch = (await client.post("/v1/batches", json=wish)).json()
    assert (batch["status"], batch["expires_at"]) == ("failed", None)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/batches", "GET, POST"),
        ("/v1/files/file-x", "DELETE, GET"),
        ("/v1/webhook_endpoints/x", "DELETE, GET, POST"),
        (f"{ACCOUNT}/ai/batches/x/why", "GET"),
        ("/health", "GET, HEAD"),
    ],
)
async def test_allow_names_every_method_of_a_path(client: httpx.AsyncClient, path: str, allowed: str) -> None:
    answer = await client.options(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("change", [{"mime_type": False}, {"expires_after": {}}])
async def test_an_upload_of_wrong_fields_is_refused(client: httpx.AsyncClient, change: dict[str, object]) -> None:
    wish = {"purpose": "user_data", "filename": "a", "bytes": 1, "mime_type": "text/plain"}
    answer = await client.post("/v1/uploads", json=wish | change)
    assert answer.status_code == 400
    assert next(iter(change)) in answer.json()["errors"][0]["message"]
