"""Claims about what leaves the console gzipped: pages that their reader has asked for, nothing else."""

import gzip
import re

import httpx
import pytest

from app.access import sessions
from app.access.roles import Grant, Role
from app.console import compression
from app.db.pool import Database
from testing import operations_data
from tests.console.conftest import SignIn

GZIP = {"accept-encoding": "gzip, br"}


async def raw(client: httpx.AsyncClient, path: str, **headers: str) -> tuple[httpx.Headers, bytes]:
    """The headers and the bytes of an answer as they are sent."""
    async with client.stream("GET", path, headers=GZIP | {k.replace("_", "-"): v for k, v in headers.items()}) as got:
        return got.headers, b"".join([part async for part in got.aiter_raw()])


@pytest.mark.parametrize("cause", ["same-origin", "none"])
async def test_a_page_that_its_reader_asked_for_is_sent_in_a_third_of_its_bytes(cause: str, sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR, None)
    headers, body = await raw(client, "/console/now", sec_fetch_site=cause)
    assert headers["content-encoding"] == "gzip"
    assert headers["cache-control"] == "no-store"
    text = gzip.decompress(body)
    assert text.endswith(b"</html>\n") or b"</html>" in text
    assert len(body) < len(text) / 3
    assert int(headers["content-length"]) == len(body)


async def test_the_first_page_with_all_that_it_loads_is_at_most_60_kilobytes(
    sign_in: SignIn, database: Database
) -> None:
    async with database.transaction() as conn:
        await operations_data.fill(conn, samples=360)
    client = await sign_in(Role.OPERATOR, None)
    _, body = await raw(client, "/console/now", sec_fetch_site="none")
    loaded = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', gzip.decompress(body).decode()))
    assert len(loaded) > 5
    sizes = {path: len((await raw(client, path))[1]) for path in loaded}
    assert len(body) + sum(sizes.values()) <= 60_000, (len(body), sizes)


@pytest.mark.parametrize("cause", ["cross-site", "same-site"])
async def test_what_another_site_made_the_browser_ask_for_is_not_gzipped(cause: str, sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR, None)
    headers, body = await raw(client, "/console/find?q=guess", sec_fetch_site=cause)
    assert "content-encoding" not in headers
    assert b"</html>" in body
    assert "sec-fetch-site" in headers["vary"]


async def test_a_browser_that_does_not_take_gzip_gets_plain_text(sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR, None)
    headers, body = await raw(client, "/console/now", accept_encoding="identity")
    assert "content-encoding" not in headers
    assert b"</html>" in body


async def test_the_live_parts_that_are_polled_are_gzipped(sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR, None)
    headers, body = await raw(client, "/console/look?page=now")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(body).startswith(b"<hx-partial")


async def test_the_page_of_a_one_time_link_is_not_gzipped(stranger: httpx.AsyncClient, database: Database) -> None:
    async with database.transaction() as conn:
        token = await sessions.invite(conn, Grant("ada", Role.OPERATOR))
    headers, body = await raw(stranger, f"/console/login?token={token}")
    assert "content-encoding" not in headers
    assert len(body) > compression._LEAST_BYTES
