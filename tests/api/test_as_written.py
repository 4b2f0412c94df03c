"""Claims about what callers send and others read.

requests            every value reaches the engine, in the order of its keys and in one spelling, or is refused by its name
files, answers      their bytes
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.engines import requests
from app.engines.requests import Target
from app.queue import service
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.in_process import running
from tests.api.support import BATCHES, MODEL, RUN, SUBMIT, run_all
from tests.api.test_conversations import engine
from tests.pipelines.test_served import Played
from tests.queue import support

__all__ = ["engine"]

ODD = (
    r'{"whole":[0,-0,9007199254740993,18446744073709551615,-9223372036854775808],'
    r'"parts":[-0.0,1.10,1e2,1E-7,5e-324,1.7976931348623157e308,0.1000000000000000055511151231257827,1.1000000000000001],'
    r'"text":["\u00e9\ud83d\ude00\/\b\u007f","\u2028","","115792089237316195423570985008687907853269984665640564039457584"],'
    r'"":{},"none":[null,true,false,[]," "],"deep":' + 40 * "[" + 40 * "]" + "}"
)
# The same as engines read it: values as numbers of 64 bits, characters as UTF-8.
WRITTEN = (
    '{"whole":[0,0,9007199254740993,18446744073709551615,-9223372036854775808],'
    '"parts":[-0.0,1.1,100.0,1e-7,5e-324,1.7976931348623157e+308,0.1,1.1],'
    '"text":["\u00e9\U0001f600/\\b\u007f","\u2028","","115792089237316195423570985008687907853269984665640564039457584"],'
    '"":{},"none":[null,true,false,[]," "],"deep":' + 40 * "[" + 40 * "]" + "}"
)
UNFIT = ("18446744073709551616", "-9223372036854775809", str(2**256 - 1), "1" + 5000 * "0", "1e400", "-1.5E+309",
         "1e-400", "-1.5E-0400", "0." + 330 * "0" + "1", "123456789012345678901.0", "3.14159265358979323846",
         "123456789012345679e3")  # fmt: skip
NAMES = [
    (b"filename*=UTF-8''%e2%82%ac%20rates.jsonl", "\u20ac rates.jsonl"),
    (b"filename=\"plain.jsonl\"; FileName*=utf-8'en'%C3%A4.jsonl", "\u00e4.jsonl"),
    (b"filename*=iso-8859-1''%e4.jsonl", "\u00e4.jsonl"),
    (b"filename*=\"UTF-8''%C3%A4;.jsonl\"", "\u00e4;.jsonl"),
    (b"filename=\"x; filename*=UTF-8''y\"", "x; filename*=UTF-8''y"),
    (b'filename="\xe2\x82\xac.jsonl"', "\u20ac.jsonl"),
    (b'filename="50%25~a.jsonl"', "50%25~a.jsonl"),
    (b'filename="a%22b%0A.jsonl"', 'a"b\n.jsonl'),  # as browsers, httpx and curl send a"b
    (rb'filename="a\"b\\c.jsonl"', r'a"b\c.jsonl'),  # as RFC 9110 writes it
    (rb'filename="C:\x\name.jsonl"', r"C:\x\name.jsonl"),
    (rb'filename="\\\\server\\share.jsonl"', r"\\server\share.jsonl"),
    (b"filename = plain name.jsonl", "plain name.jsonl"),
    (b'filename="' + 255 * b"x" + b'"', 255 * "x"),
]
WRONG_NAMES = [
    (b"filename*=UTF-8''%ff", "filename* must be in UTF-8 or ISO-8859-1, and say which"),
    (b"filename*=utf-7''a", "filename* must be in UTF-8 or ISO-8859-1, and say which"),
    (b"filename*=a", "filename* must be in UTF-8 or ISO-8859-1, and say which"),
    (b"filename*=UTF-8''%00", "NUL"),
    (b'filename*0="a"; filename*1="b"', "filename*0: a name in pieces (RFC 2231) is not read"),
    (b'filename="\xe4.jsonl"', "filename has the byte 0xe4, which is not UTF-8"),
    (b'filename="a"; filename="b"', "filename twice"),
    (b'filename="a', "a quote without its end"),
    (b'filename="' + 256 * b"x" + b'"', "has 256 characters; shorten it to 255"),
]


def tools(schema: str, *, flat: bool = False) -> str:
    """The field `tools`, of chat completions or of responses, with this schema."""
    function = f'"name":"f","parameters":{{"type":"object","properties":{{"x":{{"enum":[{schema}]}}}}}}'
    return f'[{{"type":"function",{function}}}]' if flat else f'[{{"type":"function","function":{{{function}}}}}]'


def chat(schema: str) -> str:
    return f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"hi"}}],"tools":{tools(schema)}}}'


def response(schema: str) -> str:
    return f'{{"model":"{MODEL}","input":"hi","background":true,"tools":{tools(schema, flat=True)}}}'


def file_of(schema: str) -> bytes:
    line = f'{{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{chat(schema)}}}'
    return b"--x\r\n" + (
        b'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
        b'Content-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + line.encode() + b"\r\n--x--\r\n"
    )


def pipeline(schema: str) -> str:
    stage = f'{{"id":"a","model":"{MODEL}","body":{chat(schema).replace(f"{MODEL}", MODEL)}}}'
    stage = stage.replace(f'"body":{{"model":"{MODEL}",', '"body":{')
    return f'{{"name":"x","input":{{"items":[{{"custom_id":"a"}}]}},"stages":[{stage}]}}'


async def sent(client: httpx.AsyncClient, path: str, body: str | bytes) -> httpx.Response:
    kind = "multipart/form-data; boundary=x" if isinstance(body, bytes) else "application/json"
    return await client.post(path, content=body, headers={"content-type": kind})


async def queued(database: Database) -> list[bytes]:
    """What the engine would get of the items that wait."""
    found: list[bytes] = []
    async with database.durable() as conn:
        [(pool,)] = await (await conn.execute("select pool_id from pool")).fetchall()
        worker = await support.make_worker(database, pool)
        while lease := await support.claim(conn, pool, worker):
            for item in await service.load(conn, lease):
                found.append(requests.build(json.loads(item.body), item.endpoint, Target(MODEL, 10, 100), "salt").body)
    return found


async def test_every_legal_value_reaches_the_engine_in_one_spelling_on_every_path(
    client: httpx.AsyncClient, database: Database, settings: Settings, engine: FakeEngine
) -> None:
    assert repr(json.loads(WRITTEN)) == repr(json.loads(ODD))  # which tells -0.0 from 0 and 1.0 from 1
    for path, body in (
        ("/v1/chat/completions", chat(ODD)),
        ("/v1/chat/completions", chat(ODD).replace('"messages"', '"stream":true,"messages"')),
        ("/v1/responses", response(ODD).replace('"background":true', '"store":false')),
        (RUN, chat(ODD)),
    ):
        assert (await sent(client, path, body)).status_code == 200
        assert WRITTEN.encode() in engine.raw.pop()

    file = (await sent(client, "/v1/files", file_of(ODD))).json()
    batch = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert (await client.post("/v1/batches", json=batch)).json()["status"] != "failed"
    lines = {"content-type": "application/x-ndjson"}
    for answer in (
        await sent(client, "/v1/responses", response(ODD)),
        await sent(client, SUBMIT, f'{{"requests":[{chat(ODD)}]}}'),
        await client.post(SUBMIT, content=chat(ODD), headers=lines),
        await sent(client, "/v1/pipelines", pipeline(ODD)),
    ):
        assert answer.status_code == 200, answer.text
    while await Played(database, settings).feeder.step():
        pass
    assert [WRITTEN.encode() in body for body in await queued(database)] == [True] * 5
    assert ODD.encode() in (await client.get(f"/v1/files/{file['id']}/content")).content


PRICE = "price = { input = 1.0, cached_input = 1.0, output = 1.0 }\n"
COST = '"usage":{"cost":0.0,"currency":"USD"}'


@pytest.mark.parametrize(("price", "usage"), [("", '"usage":{}'), (PRICE, COST)], ids=["no price", "a price"])
async def test_an_answer_keeps_its_bytes_on_every_path_with_a_price_and_without(
    settings: Settings, key: str, database: Database, engine: FakeEngine, tmp_path: Path, price: str, usage: str
) -> None:
    given = (
        f'{{ "choices":[{{"index":0,"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{{}},"odd":{ODD}}}'
    )
    text = given.replace('"usage":{}', usage)
    chunk = given.replace("message", "delta")
    events = f"data: {chunk}\n\ndata: [DONE]\n\n"
    models = tmp_path / "models.toml"
    models.write_text(f'[models."{MODEL}"]\ncontext_window = 8192\ncapabilities = ["async_queue"]\n{price}')
    async with running(settings.model_copy(update={"models_file": models}), key) as (_, client):
        plain = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        engine.script({"mode": "junk", "body": given})
        assert (await client.post("/v1/chat/completions", json=plain)).text == text
        engine.script({"mode": "status", "status": 200, "type": "text/event-stream", "body": events})
        answer = await client.post("/v1/chat/completions", json=plain | {"stream": True})
        assert answer.text == events.replace('"usage":{}', usage)

        whole = f'{{"object":"response","status":"completed","output":[],"usage":{{}},"odd":{ODD}}}'
        engine.script({"mode": "junk", "body": whole})
        for more in ({"store": False}, {}):
            answer = await client.post("/v1/responses", json={"model": MODEL, "input": "hi", **more})
            assert f'{usage},"odd":{ODD},' in answer.text
        event = f'data: {{"type":"response.completed","response":{whole}}}\n\n'
        engine.script({"mode": "status", "status": 200, "type": "text/event-stream", "body": event})
        answer = await client.post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": True})
        assert f'{usage},"odd":{ODD},' in answer.text

        file = (await sent(client, "/v1/files", file_of("1"))).json()
        batch = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        made = (await client.post("/v1/batches", json=batch)).json()["id"]
        await run_all(database, whole=given)
        done = (await client.get(f"/v1/batches/{made}")).json()
        assert text in (await client.get(f"/v1/files/{done['output_file_id']}/content")).text


@pytest.mark.parametrize("value", UNFIT, ids=lambda value: value[:22])
async def test_a_number_that_would_become_another_is_refused_by_its_name_on_every_path(
    client: httpx.AsyncClient, value: str
) -> None:
    odd, place = f'[1,{{"wei":{value}}}]', "properties.x.enum[0][1].wei"
    for path, body in (
        ("/v1/chat/completions", chat(odd)),
        ("/v1/responses", response(odd)),
        ("/v1/pipelines", pipeline(odd)),
        (RUN, chat(odd)),
        ("/v1/batches", f'{{"requests":[{chat(odd)}]}}'),
    ):
        answer = await sent(client, path, body)
        assert (answer.status_code, f"{place}: the number " in answer.text) == (400, True), answer.text
    file = (await sent(client, "/v1/files", file_of(odd))).json()
    assert f"{place}: the number " in file["status_details"]


def named(disposition: bytes) -> bytes:
    return file_of("1").replace(b'filename="a.jsonl"', disposition)


@pytest.mark.parametrize(("disposition", "name"), NAMES)
async def test_the_name_of_a_file_is_the_one_that_was_sent(
    client: httpx.AsyncClient, disposition: bytes, name: str
) -> None:
    answer = await sent(client, "/v1/files", named(disposition))
    assert (answer.status_code, answer.json().get("filename")) == (200, name), answer.text


@pytest.mark.parametrize(("disposition", "reason"), WRONG_NAMES)
async def test_a_name_that_cannot_be_kept_is_refused_with_the_reason(
    client: httpx.AsyncClient, disposition: bytes, reason: str
) -> None:
    answer = await sent(client, "/v1/files", named(disposition))
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["param"], reason in answer.json()["error"]["message"]) == ("file", True), answer.text


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ('{"team":"équipe €"}'.encode(), {"team": "équipe €"}),
        (b'{"n":1.10,"large":12345678901234567890}', {"n": "1.10", "large": "12345678901234567890"}),
        (b'{"team":"\xe9quipe"}', "cf-aig-metadata: the byte 0xe9 at column 10 is not UTF-8; send the header in UTF-8"),
        (b'{"n":18446744073709551616}', "cf-aig-metadata: n: the number does not fit into 64 bits"),
        (b'{"n":1,}', "cf-aig-metadata: not valid JSON: a comma after the last entry; remove it (column 7)"),
        (b'{"n":1,"n":2}', "cf-aig-metadata: "),
    ],
)
async def test_metadata_in_a_header_is_stored_as_it_was_sent_or_refused_with_the_reason(
    client: httpx.AsyncClient, sent: bytes, stored: dict[str, str] | str
) -> None:
    headers: Any = {"cf-aig-metadata": sent}
    answer = await client.post(SUBMIT, json={"requests": [{"prompt": "hi"}]}, headers=headers)
    if isinstance(stored, str):
        assert (answer.status_code, answer.json()["errors"][0]["message"][: len(stored)]) == (400, stored)
        return
    made = answer.json()["result"]["request_id"]
    assert (await client.get(f"{BATCHES}/{made}")).json()["result"]["metadata"] == stored


async def test_a_name_of_an_upload_in_parts_that_cannot_be_kept_is_refused(client: httpx.AsyncClient) -> None:
    body = {"filename": 256 * "x", "purpose": "batch", "bytes": 1, "mime_type": "text/plain"}
    answer = await client.post("/v1/uploads", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "filename"), answer.text
