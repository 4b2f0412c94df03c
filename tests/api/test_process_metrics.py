"""The folders in which several processes of an API keep their metrics."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEEPS_ONE = """
import os
from app.api import process_metrics
with process_metrics.shared():
    print(os.environ[process_metrics._FOLDER], flush=True)
    input()
"""


@contextmanager
def api(temporary: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process with a folder. It ends in order, if it still lives."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", _KEEPS_ONE], env=environment, text=True, **pipes) as process:
        assert process.stdout
        yield Path(process.stdout.readline().strip()), process
        process.communicate("\n")


def test_folders_of_killed_apis_are_removed_at_the_next_start_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    with api(tmp_path) as (living, _), api(tmp_path) as (left, killed):
        killed.kill()
        killed.wait()
        assert left.is_dir()
        with api(tmp_path) as (new, _):
            assert living.is_dir()
            assert new.is_dir()
            assert not left.exists()
    assert list(tmp_path.iterdir()) == []
