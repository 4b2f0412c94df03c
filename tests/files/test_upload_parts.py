"""Uploads in parts: their rows."""

from datetime import UTC, datetime, timedelta

import pytest

from app import clock
from app.db.pool import Database
from app.files import upload_parts
from tests.webhooks.support import make_tenant


@pytest.mark.parametrize("hours", [-30, 30])
async def test_the_databases_clock_decides_when_an_upload_has_expired(
    database: Database, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(hours=hours))
    async with database.durable() as conn:
        await make_tenant(conn)
        upload = await upload_parts.create(conn, 1, filename="x", purpose="batch", size=7, file_seconds=3600)
        assert upload.status == "pending"
        await conn.execute("update upload set expires_at = now()")
        assert (await upload_parts.get(conn, 1, upload.upload_id)).status == "expired"
