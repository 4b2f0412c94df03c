"""Tests on another PostgreSQL than the embedded one: TESTS_ON_POSTGRES names a folder whose `bin` has its programs.

    TESTS_ON_POSTGRES=/usr/lib/postgresql/15 .venv/bin/python -m pytest tests/queue tests/db

Tests that start a whole installation (`slackwater up`) on a database of its own still have the embedded one there.
"""

import os
from pathlib import Path

import pytest

from app.db import cluster, embedded

FOLDER = os.environ.get("TESTS_ON_POSTGRES", "")
KIND = "external" if FOLDER else "embedded"  # what the table of versions calls it


def pytest_configure() -> None:
    """Start servers by these programs."""
    if not FOLDER:
        return
    if not (Path(FOLDER) / "bin" / "postgres").exists():
        pytest.exit(f"TESTS_ON_POSTGRES={FOLDER} has no bin/postgres", returncode=pytest.ExitCode.USAGE_ERROR)
    embedded._programs = lambda wheel: cluster.programs(Path(FOLDER))
    embedded._HBA = "local all all trust\n"  # PostgreSQL 15 knows no `all` in pg_ident.conf
