"""Claims about refusals: the documented code, the named place, nothing stored."""

import gzip
import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.api.support import RUN, SUBMIT

GOOD = {"prompt": "hello"}
NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
GENERIC = "/client/v4/accounts/acme/ai/run?queueRequest=true"


def stored(database_url: str) -> int:
    """Batches, payload rows and chunks in the database."""
    with psycopg.connect(database_url) as conn:
        query = (
            "select (select count(*) from batch) + (select count(*) from item_payload) + (select count(*) from chunk)"
        )
        row = conn.execute(query).fetchone()
    assert row
    return int(row[0])


def check(answer: httpx.Response, status: int, code: int, *words: str) -> None:
    """The error envelope with this status and code; the message holds every word."""
    body = answer.json()
    assert (answer.status_code, body["errors"][0]["code"]) == (status, code), answer.text
    assert body["success"] is False
    assert body["result"] is None
    assert body["messages"] == []
    for word in words:
        assert word in body["errors"][0]["message"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("text", ["requests[1]", "object"]),
        (7, ["requests[1]", "object"]),
        (None, ["requests[1]", "object"]),
        ({}, ["requests[1]", "exactly one of prompt and messages"]),
        ({"promt": "hello"}, ["requests[1]", "neither was sent; 'promt': did you mean prompt?"]),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, ["requests[1]", "both"]),
        ({"prompt": ""}, ["requests[1].prompt", "non-empty"]),
        ({"prompt": ["a"]}, ["requests[1].prompt"]),
        ({"messages": []}, ["requests[1].messages", "non-empty"]),
        ({"messages": ["x"]}, ["requests[1].messages[0]"]),
        ({"messages": [{"role": "", "content": "x"}]}, ["requests[1].messages[0].role", "template"]),
        ({"messages": [{"role": "user", "content": 5}]}, ["requests[1].messages[0].content"]),
        ({"prompt": "a", "stream": True}, ["requests[1].stream"]),
        ({"prompt": "a", "n": 0}, ["requests[1].n", "between 1 and 16"]),
        ({"prompt": "a", "n": 99}, ["requests[1].n"]),
        ({"prompt": "a", "n": 2}, ["requests[1].n", "one choice"]),
        ({"prompt": "a", "model": "other"}, ["requests[1].model", "other"]),
        ({"prompt": "x" * 200_000}, ["requests[1].prompt", "8192"]),
        ({"prompt": "a", "seed": 2**70}, ["requests[1].seed"]),
        ({"prompt": "a", "max_tokens": 0}, ["requests[1].max_tokens"]),
        ({"prompt": "a", "max_tokens": "many"}, ["requests[1].max_tokens", "many"]),
        ({"prompt": "a", "max_tokens": 8193}, ["requests[1].max_tokens", "context window", "8192"]),
        ({"prompt": "word " * 40_000, "max_tokens": 100}, ["requests[1]", "context window"]),
        ({"prompt": "a", "temperature": 9}, ["requests[1].temperature", "between 0 and 5"]),
        ({"prompt": "a", "temperature": True}, ["requests[1].temperature"]),
        ({"prompt": "a", "response_format": {"type": "xml"}}, ["requests[1].response_format"]),
        ({"prompt": "a", "stop": [""]}, ["requests[1].stop"]),
        ({"prompt": "a", "external_reference": 5}, ["requests[1].external_reference"]),
        ({"prompt": "a", "priority": -1}, ["requests[1].priority", "may not be sent"]),
        ({"prompt": "a", "cache_salt": "x"}, ["requests[1].cache_salt"]),
        ({"prompt": "a", "request_id": "x"}, ["requests[1].request_id"]),
        ({"prompt": "a", "kv_transfer_params": {}}, ["requests[1].kv_transfer_params"]),
        ({"prompt": "a", "vllm_xargs": {}}, ["requests[1].vllm_xargs"]),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}]}
                ]
            },
            ["requests[1].messages[0].content[0]"],
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "x", "uuid": "u", "image_url": "http://a/x"}]}
                ]
            },
            ["requests[1].messages[0].content[0].uuid", "remove it"],
        ),
    ],
)
async def test_one_bad_item_refuses_the_batch_and_names_its_place(
    client: httpx.AsyncClient, database_url: str, item: Any, words: list[str]
) -> None:
    check(await client.post(SUBMIT, json={"requests": [GOOD, item, GOOD]}), 400, 5006, *words)
    assert stored(database_url) == 0


@pytest.mark.parametrize(
    ("body", "url", "status", "code", "word"),
    [
        ({"requests": []}, SUBMIT, 400, 5006, "at least one item"),
        ({"requests": {}}, SUBMIT, 400, 5006, "list"),
        ({"requests": [GOOD]}, RUN, 400, 5006, "queueRequest=true"),
        ({"requests": [GOOD], "request_id": str(uuid.uuid4())}, SUBMIT, 400, 5006, "not both"),
        ({"requests": [GOOD], "temperature": 1}, SUBMIT, 400, 5006, "temperature"),
        (GOOD, SUBMIT, 400, 5006, "requests"),
        ({"requests": [GOOD]}, SUBMIT.replace("smollm2", "nosuch"), 400, 5007, "; did you mean smollm2-135m-instruct?"),
        ({"requests": [GOOD]}, f"{SUBMIT}&tags=a,b,c,d,e,f", 400, 5006, "tags"),
        ({"requests": [GOOD]}, f"{SUBMIT}&completion_window=soon", 400, 5006, "or left out for no deadline; got soon"),
        ({"requests": [GOOD]}, f"{SUBMIT}&tags=a b", 400, 5006, "tags"),
        ([GOOD], SUBMIT, 400, 5006, "object"),
        ("text", SUBMIT, 400, 5006, "object"),
        ({"requests": [GOOD]}, GENERIC, 400, 5006, "model"),
        ({"requests": [GOOD], "model": "nosuch"}, GENERIC, 400, 5007, "No such model 'nosuch'; the catalogue has "),
    ],
)
async def test_bodies_of_the_wrong_form_are_refused(
    client: httpx.AsyncClient, database_url: str, body: Any, url: str, status: int, code: int, word: str
) -> None:
    check(await client.post(url, json=body), status, code, word)
    assert stored(database_url) == 0


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ('{"requests":[{"prompt":"a","prompt":"b"}]}', "twice"),
        ('{"requests":[{"prompt":"a","temperature":NaN}]}', "NaN"),
        ('{"requests":[{"prompt":"a","temperature":Infinity}]}', "Infinity"),
        ('{"requests":[{"prompt":"a\\u0000b"}]}', "u0000"),
        ('{"requests":[{"prompt":"a\\ud800"}]}', "surrogate"),
        ('{"requests":' + "[" * 80 + "]" * 80 + "}", "deeper"),
        ('{"requests":' + "[" * 5000 + "]" * 5000 + "}", "deeper"),
        ('{"requests":[{"prompt"', "not valid JSON"),
        ("{'requests': []}", "not valid JSON"),
        ('{"requests":[{"prompt":"a"}]} x', "not valid JSON"),
        ('\xef\xbb\xbf{"requests":[{"prompt":"a"}]}', "byte order mark"),
        ('{"requests":[{"prompt":"\xff"}]}', "the byte 0xff at column 25 is not UTF-8"),
        ('{"requests":\n[{"prompt":"\xc3\xa9\xed\xa0\x80"}]}', "the byte 0xed at line 2 column 14 is not UTF-8"),
    ],
)
async def test_json_that_is_ambiguous_or_broken_is_refused(
    client: httpx.AsyncClient, database_url: str, raw: str, word: str
) -> None:
    content = raw.encode("latin-1")
    check(await client.post(SUBMIT, content=content, headers=JSON), 400, 5006, word)
    line = content.replace(b'{"requests":[', b"", 1).removesuffix(b"]}")
    answer = await client.post(SUBMIT, content=b'{"prompt":"fine"}\n' + line, headers=NDJSON)
    assert answer.status_code == 400, answer.text
    assert "line 2" in answer.text
    assert stored(database_url) == 0


async def test_a_key_like_text_inside_a_string_is_no_duplicate(client: httpx.AsyncClient) -> None:
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": 'say "prompt": and \\"prompt\\":'}]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain; charset=utf-8"])
async def test_what_curl_sends_without_a_content_type_of_ones_own_is_taken_for_json(
    client: httpx.AsyncClient, kind: str | None
) -> None:
    raw = json.dumps({"requests": [GOOD]}).encode()
    answer = await client.post(SUBMIT, content=raw, headers={"content-type": kind} if kind else {})
    assert answer.status_code == 200, answer.text


async def test_wrong_content_types_and_compressed_bodies_are_refused(
    client: httpx.AsyncClient, database_url: str
) -> None:
    raw = json.dumps({"requests": [GOOD]}).encode()
    check(await client.post(SUBMIT, content=raw, headers={"content-type": "text/csv"}), 415, 3003, "Content-Type")
    zipped = await client.post(SUBMIT, content=gzip.compress(raw), headers=JSON | {"content-encoding": "gzip"})
    check(zipped, 415, 3003, "uncompressed")
    check(await client.post(SUBMIT, content=b"", headers=JSON), 400, 3003, "empty")
    assert stored(database_url) == 0


async def test_bodies_beyond_the_cap_are_refused_declared_or_not(client: httpx.AsyncClient, database_url: str) -> None:
    big = json.dumps({"requests": [{"prompt": "x" * (11 * 2**20)}]}).encode()
    check(await client.post(SUBMIT, content=big, headers=JSON), 413, 3006, "10 MB")

    async def pieces() -> Any:
        for start in range(0, len(big), 65536):
            yield big[start : start + 65536]

    check(await client.post(SUBMIT, content=pieces(), headers=JSON), 413, 3006, "10 MB")
    assert stored(database_url) == 0


async def test_unknown_foreign_and_malformed_request_ids_read_the_same(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    async with database.transaction() as conn:
        other = await tenants.create_key(conn, secret_key(settings), "other", "test")
    foreign = await client.post(
        SUBMIT.replace("acme", "other"), json={"requests": [GOOD]}, headers={"authorization": f"Bearer {other}"}
    )
    ids = [str(uuid.uuid4()), foreign.json()["result"]["request_id"], "nonsense", "", 7, None, {"a": 1}]
    answers = [await client.post(RUN, json={"request_id": each}) for each in ids]
    for answer in answers:
        check(answer, 404, 7003)
    assert len({answer.text for answer in answers}) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda headers: headers.pop("authorization"), 401),
        (lambda headers: headers.update({"authorization": "Basic abc"}), 401),
        (lambda headers: headers.update({"authorization": "Bearer nonsense"}), 401),
        (lambda headers: headers.update({"authorization": "Bearer sk_sw_abc_def"}), 401),
        (lambda headers: headers.update({"authorization": headers["authorization"] + "x"}), 401),
    ],
)
async def test_no_key_and_wrong_keys_are_refused(
    client: httpx.AsyncClient, change: Callable[[Any], Any], status: int
) -> None:
    change(client.headers)
    check(await client.post(SUBMIT, json={"requests": [GOOD]}), status, 10000, "Authentication error")


async def test_the_key_of_another_account_is_refused(client: httpx.AsyncClient) -> None:
    check(await client.post(SUBMIT.replace("acme", "other"), json={"requests": [GOOD]}), 403, 10000)


async def test_a_revoked_key_is_refused(client: httpx.AsyncClient, database: Database, key: str) -> None:
    async with database.durable() as conn:
        assert await tenants.revoke_key(conn, key.split("_")[2])
    check(await client.post(SUBMIT, json={"requests": [GOOD]}), 401, 10000)


async def test_paths_and_methods_that_do_not_exist_answer_the_envelope(client: httpx.AsyncClient) -> None:
    check(await client.post("/client/v4/accounts/acme/ai/nothing", json={}), 404, 7003, "Could not route")
    check(await client.get(RUN), 405, 7001, "GET not supported")


async def test_a_create_without_file_and_requests_is_refused_with_both_names(client: httpx.AsyncClient) -> None:
    for more in ({}, {"input_file_id": None}):
        wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h"} | more
        error = (await client.post("/v1/batches", json=wish)).json()["error"]
        assert (error["param"], error["code"]) == ("input_file_id", "missing_required_parameter")
        assert error["message"] == "input_file_id: is missing; name an uploaded file, or send its lines as requests"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["{", "{}"],
            "line 1: This line is not parseable as valid JSON: it ends before it is complete;"
            " close what is open, or send all of it (column 2), and 1 more. A batch of this file fails",
        ),
        (["{}"], "line 1: Missing required parameter: 'custom_id'. A batch of this file fails"),
        (
            ['{"a":"\udcff"}', "{}"],
            "line 1: This line is not parseable as valid JSON: the byte 0xff at column 7 is not UTF-8; send it as UTF-8"
            " (it may be Latin-1), and 1 more. A batch of this file fails",
        ),
    ],
)
async def test_the_problems_of_a_file_are_whole_sentences(
    client: httpx.AsyncClient, lines: list[str], told: str
) -> None:
    files = {"file": ("a.jsonl", "\n".join(lines).encode(errors="surrogateescape")), "purpose": (None, "batch")}
    details = (await client.post("/v1/files", files=files)).json()["status_details"]
    assert details == f"{told}, unless its validation is lenient."
