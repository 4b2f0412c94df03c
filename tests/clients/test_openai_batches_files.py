"""OpenAI's client uploads, lists, reads and deletes files, on a whole installation. § as in `test_openai_batches.py`."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.clients.batches import REFUSED, created, ended, line, shown, uploaded, watched

pytestmark = pytest.mark.slow

DAY = 86_400
HOUR = {"anchor": "created_at", "seconds": 3600}


def test_a_file_object_has_every_field(client: OpenAI) -> None:  # §2
    content = json.dumps(line(0)).encode()
    client.files.create(file=("older.jsonl", content), purpose="batch")
    made = client.files.create(file=("input.jsonl", content), purpose="batch")
    found = shown(client, f"files/{made.id}")
    golden = {
        "id": made.id,
        "object": "file",
        "bytes": len(content),
        "created_at": made.created_at,
        "expires_at": made.created_at + 30 * DAY,
        "filename": "input.jsonl",
        "purpose": "batch",
        "status": "processed",
        "status_details": None,
    }
    assert {key: found[key] for key in golden} == golden
    assert shown(client, "files?limit=1&purpose=batch") | {"data": []} == {
        "object": "list", "data": [], "first_id": made.id, "last_id": made.id, "has_more": True
    }  # fmt: skip


def test_an_upload_is_kept_as_long_as_was_asked_for(client: OpenAI) -> None:  # §2
    made = client.files.create(file=("input.jsonl", json.dumps(line(0)).encode()), purpose="batch", expires_after=HOUR)  # type: ignore[arg-type]
    assert made.expires_at == made.created_at + 3600
    for wrong in ({"seconds": 3599}, {"seconds": 30 * DAY + 1}, {"anchor": "last_active_at"}):
        with pytest.raises(openai.BadRequestError, match="expires_after"):
            client.files.create(file=("input.jsonl", b"{}"), purpose="batch", expires_after=HOUR | wrong)  # type: ignore[arg-type]


def test_both_files_of_a_batch_are_kept_as_long_as_was_asked_for(client: OpenAI) -> None:  # §4
    batch = created(client, uploaded(client, line(0), line(1, REFUSED)), output_expires_after=HOUR)
    batch = ended(client, batch)
    for file_id in (batch.output_file_id, batch.error_file_id):
        file = client.files.retrieve(file_id or "")
        assert (file.purpose, file.expires_at) == ("batch_output", file.created_at + 3600)
        assert file.created_at >= batch.created_at


def test_every_file_is_met_once_however_small_the_pages(client: OpenAI) -> None:  # §13
    made = [uploaded(client, line(n)) for n in range(5)]
    pages = client.files.list(limit=2, order="asc", after=made[0], purpose="batch")
    assert [len(page.data) for page in pages.iter_pages()] == [2, 2]  # the last one says that it is
    assert [each.id for each in client.files.list(limit=2, order="asc", after=made[0], purpose="batch")] == made[1:]
    newest = client.files.list(limit=3, purpose="batch")
    found = [each.id for each in newest]
    assert found[:5] == made[::-1]
    assert len(found) == len(set(found))
    empty = shown(client, f"files?order=asc&purpose=batch&after={made[-1]}")
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_a_delete_comes_with_a_json_content_type_and_no_body(client: OpenAI) -> None:  # §1, §13
    file_id = uploaded(client, line(0))
    requests: list[Any] = []
    gone = watched(client, requests).files.delete(file_id)
    assert gone.to_dict() == {"id": file_id, "object": "file", "deleted": True}
    (sent,) = requests
    assert (sent.headers["content-type"], sent.read()) == ("application/json", b"")


def test_a_content_is_the_bytes_that_came_whatever_is_accepted(client: OpenAI) -> None:  # §1
    content = f"{json.dumps(line(0))}\r\n\n{json.dumps(line(1, 'schön'), ensure_ascii=False)}".encode()
    file_id = client.files.create(file=("input.jsonl", content), purpose="batch").id
    requests: list[Any] = []
    found = watched(client, requests).files.content(file_id)
    assert [each.headers["accept"] for each in requests] == ["application/binary"]
    assert found.content == content
    assert found.text == content.decode()
    assert list(found.iter_lines()) == content.decode().splitlines()
    headers = {"authorization": f"Bearer {client.api_key}", "accept": "application/json"}
    url = f"{client.base_url}files/{file_id}/content"
    assert httpx.get(url, headers=headers, trust_env=False).content == content


def test_a_line_of_results_is_one_line_for_every_reader(client: OpenAI) -> None:
    text = "one\u2028two\u2029three\x85four"
    done = ended(client, created(client, uploaded(client, json.dumps(line(0, text), ensure_ascii=False))))
    content = client.files.content(str(done.output_file_id))
    for lines in (list(content.iter_lines()), content.text.splitlines()):
        (each,) = lines
        assert json.loads(each)["response"]["body"]["choices"][0]["message"]["content"] == f"echo: {text}"


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


def test_curl_uploads_too_in_any_order(client: OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text("\n".join(json.dumps(line(n)) for n in range(5000)))  # many blocks of a body
    command = ["curl", "-s", f"{client.base_url}files", "-H", f"Authorization: Bearer {client.api_key}"]
    purpose, content = ["-F", "purpose=batch"], ["-F", f"file=@{file}"]
    for form in ([*purpose, *content], [*content, *purpose]):
        made = json.loads(subprocess.run([*command, *form], capture_output=True, check=True).stdout)
        assert (made["object"], made["bytes"], made["filename"]) == ("file", file.stat().st_size, "input.jsonl")
    for form in (content, ["-F", "purpose=fine-tune", *content], purpose):
        refused = json.loads(subprocess.run([*command, *form], capture_output=True, check=True).stdout)
        assert refused["error"]["message"].startswith(("purpose:", "file:"))


@pytest.mark.parametrize("purpose", ["assistants", "user_data"])
def test_a_file_of_another_purpose_is_kept_as_it_is_and_no_batch_is_made_of_it(client: OpenAI, purpose: Any) -> None:
    content = bytes(range(256)) * 5000  # no text, in lines that no batch file may have
    made = client.files.create(file=("notes.bin", content), purpose=purpose)
    assert (made.purpose, made.bytes, made.status_details) == (purpose, len(content), None)
    assert client.files.content(made.id).content == content
    assert made.id in [each.id for each in client.files.list(purpose=purpose)]
    batch = created(client, made.id)
    assert batch.status == "failed"
    assert batch.errors
    (error,) = batch.errors.data or ()
    assert error.message == f"The purpose of file {made.id} is '{purpose}'; a batch takes one of 'batch'."
    with pytest.raises(openai.BadRequestError, match="batch file has an estimate"):
        client.get(f"/files/{made.id}/estimate", cast_to=object)


def test_a_purpose_that_comes_after_the_bytes_decides_too(client: OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"no batch file " * 200_000)
    command = ["curl", "-s", f"{client.base_url}files", "-H", f"Authorization: Bearer {client.api_key}"]
    content = ["-F", f"file=@{file}"]
    made = json.loads(
        subprocess.run([*command, *content, "-F", "purpose=user_data"], capture_output=True, check=True).stdout
    )
    assert (made["purpose"], made["bytes"]) == ("user_data", file.stat().st_size)
    refused = json.loads(
        subprocess.run([*command, *content, "-F", "purpose=batch"], capture_output=True, check=True).stdout
    )
    assert refused["error"]["message"]
