"""A store in a folder, and one in S3 where a server answers at SLACKWATER_TEST_S3."""

import os
import uuid
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from app.storage.store import Store

HOW = "set SLACKWATER_TEST_S3 to the URL of a throwaway S3 server, e.g. `pip install moto[server,s3]; moto_server -p 5055`"


def s3_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Settings:
    """A fresh bucket at the test's S3 server. Skips without one."""
    endpoint = os.environ.get("SLACKWATER_TEST_S3", "")
    if not endpoint:
        pytest.skip(f"no S3 server: {HOW}")
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    assert httpx.put(f"{endpoint}/{bucket}").status_code == 200
    return Settings(data_dir=folder, storage_url=f"s3://{bucket}/some/where", storage_endpoint=endpoint)


@pytest.fixture(params=["folder", "s3"])
def stored_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Settings of a fresh store of either kind."""
    return Settings(data_dir=tmp_path) if request.param == "folder" else s3_settings(monkeypatch, tmp_path)


@pytest.fixture
def store(stored_at: Settings) -> Store:
    """An empty store of either kind."""
    return Store.of(stored_at)
