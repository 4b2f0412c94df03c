"""A store in a folder, and one in S3."""

from pathlib import Path

import pytest

from app.settings import Settings
from app.storage.store import Store
from tests.storage.support import s3_settings


@pytest.fixture(params=["folder", "s3"])
def stored_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Settings of a fresh store of either kind."""
    return Settings(data_dir=tmp_path) if request.param == "folder" else s3_settings(request, monkeypatch, tmp_path)


@pytest.fixture
def store(stored_at: Settings) -> Store:
    """An empty store of either kind."""
    return Store.of(stored_at)
