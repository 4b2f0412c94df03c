"""Claims about files and uploads of OpenAI's API, on the API in process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.settings import Settings
from app.storage.store import Store
from tests.api.in_process import running
from tests.api.support import line, uploaded
from tests.disks import ballast, small_disk

SIZE = 1000
SAID = {"content-type", "content-disposition", "etag", "accept-ranges", "x-slackwater-complete"}


async def announced(client: httpx.AsyncClient, size: int) -> str:
    wish = {"filename": "in.jsonl", "purpose": "batch", "bytes": size, "mime_type": "application/jsonl"}
    return str((await client.post("/v1/uploads", json=wish)).json()["id"])


async def part(client: httpx.AsyncClient, upload: str, content: bytes) -> httpx.Response:
    return await client.post(f"/v1/uploads/{upload}/parts", files={"data": ("part", content)})


def wish(file: str, **more: Any) -> dict[str, Any]:
    return {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h", **more}


async def test_the_parts_of_an_upload_are_bounded_together_and_one_may_come_again(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    upload, half = await announced(client, SIZE), b"x" * (SIZE // 2)
    answers = await asyncio.gather(*(part(client, upload, half) for _ in range(8)))
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200] * 4 + [400] * 4  # each byte twice: a part whose answer was lost is sent again
    refused = next(answer for answer in answers if answer.status_code == 400)
    assert "the limit is 2 times" in refused.json()["error"]["message"]
    kept = [size async for _, size in Store.of(settings).list("upload")]
    assert kept == [SIZE // 2] * 4


async def test_a_part_that_the_store_does_not_take_counts_for_nothing(
    client: httpx.AsyncClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await announced(client, SIZE)
    with monkeypatch.context() as patch:
        patch.setattr("app.storage.folder.Folder.put_file", _broken)
        for _ in range(3):
            assert (await part(client, upload, b"x" * SIZE)).status_code == 503
    assert (await part(client, upload, b"x" * SIZE)).status_code == 200


async def _broken(*_: object) -> None:
    raise OSError("broken")


async def test_a_disk_that_fills_up_while_a_part_is_written_is_a_507_with_words(settings: Settings, key: str) -> None:
    with small_disk(settings.data_dir / "spool", 2):
        async with running(settings, key) as (_, client):
            upload = await announced(client, 3_000_000)
            filler = ballast(settings.data_dir / "spool", 4096)
            for size in (5000, 3_000_000):  # of the smaller one the last bytes are in a buffer until its end
                full = await part(client, upload, b"x" * size)
                assert full.status_code == 507, full.text
                assert "disk for uploads is full" in full.json()["error"]["message"]
            filler.unlink()
            assert (await part(client, upload, b"x" * 5000)).status_code == 200


async def test_a_file_that_is_declared_above_the_cap_is_refused_as_openai_does(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    declared = str(int((settings.ndjson_body_mb + 2) * 2**20))
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": declared}

    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    refused = await client.post("/v1/files", content=nothing(), headers=headers)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["message"].startswith("File is too large. It may have at most 200 MB; ")


async def test_a_batch_without_an_eta_says_why(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/batches", json=wish(await uploaded(client, line(0))))).json()
    assert (made["eta"], made["no_eta"]) == (None, f"no engine serves {made['model']} now")
    ended = (await client.post(f"/v1/batches/{made['id']}/cancel")).json()
    assert ended["no_eta"] is None or "cancel" in ended["no_eta"]


async def test_a_create_under_a_used_key_is_its_batch_even_after_the_file_has_gone(client: httpx.AsyncClient) -> None:
    file, headers = await uploaded(client, line(0)), {"idempotency-key": "once"}
    made = (await client.post("/v1/batches", json=wish(file, metadata={"a": "b"}), headers=headers)).json()
    assert made["status"] != "failed"
    await client.delete(f"/v1/files/{file}")
    again = await client.post("/v1/batches", json=wish(file, metadata={"a": "b"}), headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, made["id"])
    other = await client.post("/v1/batches", json=wish(file, metadata={"a": "c"}), headers=headers)
    assert other.status_code == 422, other.text


@pytest.mark.parametrize(
    "changes",
    [
        {"validation": "lenient"},
        {"completion_window": "48h"},
        {"endpoint": "/v1/completions"},
        {"output_expires_after": {"anchor": "created_at", "seconds": 7200}},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_other_terms_under_a_used_key_are_refused_after_the_file_has_gone_too(
    client: httpx.AsyncClient, changes: dict[str, Any]
) -> None:
    file, headers = await uploaded(client, line(0)), {"idempotency-key": "once"}
    asked = wish(file)
    assert (await client.post("/v1/batches", json=asked, headers=headers)).json()["status"] != "failed"
    await client.delete(f"/v1/files/{file}")
    other = await client.post("/v1/batches", json=asked | changes, headers=headers)
    assert other.status_code == 422, other.text
    assert (await client.post("/v1/batches", json=asked, headers=headers)).status_code == 200


async def test_a_batch_that_was_refused_for_its_file_does_not_use_its_key_up(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": "once"}
    refused = (await client.post("/v1/batches", json=wish("file-none"), headers=headers)).json()
    assert refused["status"] == "failed"
    file = await uploaded(client, line(0))
    made = (await client.post("/v1/batches", json=wish(file), headers=headers)).json()
    assert made["status"] != "failed"


@pytest.fixture
async def contents(client: httpx.AsyncClient, database: Database) -> dict[str, bytes]:
    """By path, the content of an uploaded file, and of the error file of a batch that has ended."""
    file = await uploaded(client, line(0) + line(1))
    made = (await client.post("/v1/batches", json=wish(file))).json()
    await client.post(f"/v1/batches/{made['id']}/cancel")
    ended = (await client.get(f"/v1/batches/{made['id']}")).json()
    paths = [f"/v1/files/{each}/content" for each in (file, ended["error_file_id"])]
    return {path: (await client.get(path)).content for path in paths}


async def test_head_says_of_a_content_what_get_would(client: httpx.AsyncClient, contents: dict[str, bytes]) -> None:
    for path, content in contents.items():
        asked, got = await client.head(path), await client.get(path)
        assert (asked.status_code, asked.content) == (200, b"")
        assert int(asked.headers["content-length"]) == len(content) > 0
        told = {name: value for name, value in asked.headers.items() if name in SAID}
        assert told == {name: value for name, value in got.headers.items() if name in SAID}
        assert set(told) == SAID
        sized = str(len(content)) if path == next(iter(contents)) else None  # an error file is made while it is read
        assert got.headers.get("content-length") == sized
        later = await client.head(path, params={"offset": 1})
        assert int(later.headers["content-length"]) == len(content) - content.index(b"\n") - 1
        assert (await client.head(f"{path}s")).status_code == 404


async def test_conditions_on_a_content_are_those_of_http(client: httpx.AsyncClient, contents: dict[str, bytes]) -> None:
    tags = {path: (await client.get(path)).headers["etag"] for path in contents}
    assert len(set(tags.values())) == 2
    for (path, content), other in zip(contents.items(), reversed(tags.values()), strict=True):
        tag = tags[path]
        for given, status in (
            ({"if-none-match": tag}, 304),
            ({"if-none-match": f'"x", W/{tag}'}, 304),
            ({"if-none-match": "*"}, 304),
            ({"if-none-match": other}, 200),
            ({"if-match": tag}, 200),
            ({"if-match": "*"}, 200),
            ({"if-match": other}, 412),
            ({"if-match": f"W/{tag}"}, 412),
            ({"if-modified-since": "Fri, 01 Jan 2100 00:00:00 GMT"}, 200),
            ({"range": "bytes=3-9", "if-range": tag}, 206),
            ({"range": "Bytes=3-9"}, 206),
            ({"range": "bytes=3-9", "if-range": other}, 200),
            ({"range": "bytes=3-9", "if-range": f"W/{tag}"}, 200),
            ({"range": "bytes=3-9", "if-range": "Fri, 01 Jan 2100 00:00:00 GMT"}, 200),
            ({"range": f"bytes=0003-{'9' * 5000}"}, 206),
            ({"range": f"bytes={'9' * 5000}-"}, 416),
            ({"range": "bytes=999999-", "if-range": tag}, 416),
            ({"range": "bytes=999999-", "if-range": other}, 200),
            ({"range": "bytes=3-9", "if-none-match": tag}, 304),
            ({"range": "bytes=3-9", "if-match": other}, 412),
        ):
            answer = await client.get(path, headers=given)
            assert answer.status_code == status, (given, answer.text)
            part = content[3:] if "99" in given.get("range", "") else content[3:10]
            expected = {200: content, 206: part, 304: b""}.get(status, answer.content)
            assert answer.content == expected, given
            assert status in (412, 416) or answer.headers["etag"] == tag
        assert (await client.head(path, headers={"range": "bytes=3-9"})).status_code == 200
        assert (await client.head(path, headers={"if-none-match": tag})).status_code == 304


async def test_a_content_that_grows_has_no_tag(client: httpx.AsyncClient) -> None:
    file = await uploaded(client, line(0))
    made = (await client.post("/v1/batches", json=wish(file) | {"partial_results": True})).json()
    growing = await client.get(f"/v1/files/{made['output_file_id']}/content", headers={"if-match": "*"})
    assert (growing.status_code, "etag" in growing.headers) == (200, False)
    assert (await client.put(f"/v1/files/{file}/content")).headers["allow"] == "GET, HEAD"


async def test_a_range_of_an_uploaded_file_is_all_that_is_read_of_it(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"".join(line(number) for number in range(20_000))
    file, read = await uploaded(client, content), list[int]()
    stream = Store.stream

    async def counted(*args: Any) -> AsyncIterator[bytes]:
        async for block in stream(*args):
            read.append(len(block))
            yield block

    monkeypatch.setattr(Store, "stream", counted)
    found = await client.get(f"/v1/files/{file}/content", headers={"range": "bytes=2000000-2000099"})
    assert (found.status_code, found.content) == (206, content[2_000_000:2_000_100])
    assert sum(read) == 100
