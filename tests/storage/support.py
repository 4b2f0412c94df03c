"""A store in an S3 server of the test run."""

import uuid
from pathlib import Path

import httpx
import pytest

from app.settings import Settings


def s3_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Settings:
    """A fresh bucket at the run's S3 server."""
    endpoint = request.getfixturevalue("s3_server")
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    assert httpx.put(f"{endpoint}/{bucket}").status_code == 200
    return Settings(data_dir=folder, storage_url=f"s3://{bucket}/some/where", storage_endpoint=endpoint)
