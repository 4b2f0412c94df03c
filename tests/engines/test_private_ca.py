"""An engine whose certificate is from a CA of its operator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.webhooks.test_egress_tls import certificate, served

CALL = """
import asyncio, sys
from app.engines.client import EngineAway, EngineClient

async def main() -> None:
    async with EngineClient(sys.argv[1], timeout_seconds=5) as client:
        try:
            await client.page("/metrics")
        except EngineAway as error:
            print(error)

asyncio.run(main())"""


@pytest.mark.parametrize("trusted", [False, True])
def test_it_is_trusted_by_the_variable_that_its_refusal_names(tmp_path: Path, *, trusted: bool) -> None:
    pem = certificate(tmp_path, "localhost")
    own = {"SSL_CERT_FILE": str(pem)} if trusted else {}
    with served(pem, []) as port:
        command = [sys.executable, "-c", CALL, f"https://localhost:{port}"]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=True)
    assert ("not trusted" in done.stdout, "SSL_CERT_FILE" in done.stdout) == (not trusted, not trusted), done.stdout
