"""Claims about the spools of killed processes."""

import os
import time
from pathlib import Path

from app.batches.intake import spool


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / "tmpold", tmp_path / "tmpnew"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, time.time() - 86_401))
    assert spool.sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tmpnew"]
    assert spool.sweep(tmp_path / "none") == 0
