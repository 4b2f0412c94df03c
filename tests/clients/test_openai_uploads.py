"""OpenAI's Uploads API with its client: a batch file in parts."""

import hashlib
import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.clients.batches import created, ended, line

pytestmark = pytest.mark.slow


def content(count: int = 6) -> bytes:
    return b"".join(json.dumps(line(n)).encode() + b"\n" for n in range(count))


def announced(client: OpenAI, size: int, **more: Any) -> Any:
    wish: Any = {"filename": "in.jsonl", "purpose": "batch", "bytes": size, "mime_type": "application/jsonl"}
    return client.uploads.create(**wish, **more)


def test_a_file_comes_in_parts_in_any_order_and_is_a_batch_file(client: OpenAI) -> None:
    whole = content()
    upload = announced(client, len(whole))
    assert (upload.object, upload.status, upload.file, upload.bytes) == ("upload", "pending", None, len(whole))
    assert upload.expires_at == upload.created_at + 3600
    cuts = [whole[:100], whole[100:333], whole[333:]]
    later = client.uploads.parts.create(upload.id, data=cuts[2])
    first = client.uploads.parts.create(upload.id, data=cuts[0])
    middle = client.uploads.parts.create(upload.id, data=cuts[1])
    assert (later.object, later.upload_id) == ("upload.part", upload.id)
    part_ids = [first.id, middle.id, later.id]
    done = client.uploads.complete(upload.id, part_ids=part_ids, md5=hashlib.md5(whole).hexdigest())
    assert done.status == "completed"
    assert done.file
    assert client.files.content(done.file.id).content == whole
    again = client.uploads.complete(upload.id, part_ids=part_ids)  # a client that did not hear the answer
    assert again.file
    assert again.file.id == done.file.id
    assert ended(client, created(client, done.file.id)).status == "completed"
    with pytest.raises(openai.ConflictError, match="completed; only a pending upload"):
        client.uploads.cancel(upload.id)


def test_what_does_not_fit_together_makes_no_file(client: OpenAI) -> None:
    whole = content()
    upload = announced(client, len(whole))
    part = client.uploads.parts.create(upload.id, data=whole)
    half = client.uploads.parts.create(upload.id, data=whole[:50])
    other = client.uploads.parts.create(announced(client, len(whole)).id, data=whole)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"part_ids": [half.id]}, f"have 50 bytes, but {len(whole)} were announced"),
        ({"part_ids": [other.id]}, r"part_ids\[0\]: is not a part of this upload"),
        ({"part_ids": [part.id, part.id]}, "a part appears twice"),
        ({"part_ids": []}, "a list of 1 to"),
        ({"part_ids": [part.id], "md5": "0" * 32}, "md5: it differs from that of these parts"),
    ]
    for given, message in wrong:
        with pytest.raises(openai.BadRequestError, match=message):
            client.uploads.complete(upload.id, **given)
    assert client.uploads.complete(upload.id, part_ids=[part.id]).status == "completed"
    with pytest.raises(openai.BadRequestError, match=r"purpose: must be one of .*; got 'fine-tune'"):
        client.uploads.create(filename="x", purpose="fine-tune", bytes=5, mime_type="text/plain")
    with pytest.raises(openai.BadRequestError, match="bytes: must be an integer between 1 and"):
        announced(client, 0)
    with pytest.raises(openai.BadRequestError, match="expires_after: must be an object"):
        announced(client, 5, expires_after="never")
    with pytest.raises(
        openai.BadRequestError, match=f"this part has {len(whole)} bytes, but the whole upload was announced with 5"
    ):
        client.uploads.parts.create(announced(client, 5).id, data=whole)


def test_a_cancelled_upload_takes_nothing_more(client: OpenAI) -> None:
    upload = announced(client, 10)
    client.uploads.parts.create(upload.id, data=b"x" * 10)
    assert {client.uploads.cancel(upload.id).status for _ in range(2)} == {"cancelled"}
    with pytest.raises(openai.ConflictError, match="it takes no more parts"):
        client.uploads.parts.create(upload.id, data=b"x")
    with pytest.raises(openai.ConflictError, match="cancelled"):
        client.uploads.complete(upload.id, part_ids=["part_" + "0" * 32])
    with pytest.raises(openai.NotFoundError, match="No such Upload object"):
        client.uploads.cancel("upload_" + "0" * 32)
