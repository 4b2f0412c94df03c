"""A client that disconnects during an upload causes no server error, and leaves no data."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message
from structlog.testing import capture_logs

from app.db.pool import Database
from app.settings import Settings
from tests.api.support import RUN, SUBMIT

LINE = b'{"prompt": "hello"}\n'
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
)


async def break_off(client: httpx.AsyncClient, key: str, path: str, kind: str, sent: bytes) -> None:
    """Send the beginning of a body, then disconnect, with the messages that uvicorn sends an application."""
    messages: list[Message] = [{"type": "http.request", "body": sent, "more_body": True}, {"type": "http.disconnect"}]
    path, _, query = path.partition("?")
    headers = [
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", kind.encode()),
        (b"x-request-id", b"gone"),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("api", 80),
    }

    async def receive() -> Message:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Message) -> None:
        """Nobody is there to read it."""

    transport: Any = client._transport
    await transport.app(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "kind", "sent"),
    [
        (RUN, "application/json", b'{"prompt": '),
        (SUBMIT, "application/json", b'{"requests": ['),
        (SUBMIT, "application/x-ndjson", LINE * 1000),
        ("/v1/files", "multipart/form-data; boundary=x", FORM + LINE * 1000),
        ("/v1/chat/completions", "application/json", b'{"model": '),
    ],
)
async def test_an_upload_that_is_broken_off_is_one_line_of_the_log_and_nothing_is_stored(
    client: httpx.AsyncClient,
    key: str,
    database: Database,
    settings: Settings,
    path: str,
    kind: str,
    sent: bytes,
) -> None:
    with capture_logs() as told:
        await break_off(client, key, path, kind, sent)
    assert told == [
        {
            "event": "request.broken_off",
            "log_level": "info",
            "path": path.partition("?")[0],
            "request_id": "gone",
        }
    ]
    async with database.relaxed() as conn:
        row = await (await conn.execute("select (select count(*) from batch), (select count(*) from file)")).fetchone()
    assert row == (0, 0)
    assert left(settings.data_dir / "spool") == []


def left(folder: Path) -> list[Path]:
    """Files below a folder."""
    return [file for file in folder.rglob("*") if file.is_file()]
