"""What others on the machine can do in a data directory is told, with the command that ends it."""

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.cli import privacy
from app.cli.doctor import machine
from app.cli.doctor.check import CheckStatus
from app.db import cluster
from app.processes import python_module
from app.settings import Settings
from tests.needs import only

root_only = only(os.geteuid() == 0, "only as root the server has a user of its own")


def made(folder: Path, mode: int) -> Settings:
    """An installation of a version that left the modes to the umask."""
    for each, its_mode in ((folder, mode), (folder / "logs", 0o755)):
        each.mkdir()
        each.chmod(its_mode)
    (folder / "up.lock").touch()
    (folder / "up.lock").chmod(0o644)
    return Settings(data_dir=folder, database_url="postgresql://elsewhere")


def test_a_folder_of_its_owner_alone_or_not_made_yet_needs_no_word(tmp_path: Path) -> None:
    assert privacy.remedy(Settings(data_dir=tmp_path / "not there")) == ""
    settings = made(tmp_path / "data", 0o700)
    with capture_logs() as told:
        privacy.warn(settings)
    assert told == []
    assert machine.privacy(settings).status is CheckStatus.OK


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711])
def test_one_that_others_can_enter_is_told_of_and_the_command_that_is_told_closes_it(tmp_path: Path, mode: int) -> None:
    settings = made(tmp_path / "a folder", mode)
    with capture_logs() as told:
        privacy.warn(settings)
    check = machine.privacy(settings)
    assert (check.status, check.fix) == (CheckStatus.WARN, told[0]["remedy"])
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == mode  # not changed in silence
    subprocess.run(check.fix, shell=True, check=True)
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert privacy.remedy(settings) == ""


@root_only
def test_one_that_roots_server_goes_through_is_closed_to_all_but_going_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_enters", lambda folder: True)
    settings = made(tmp_path / "data", 0o755).model_copy(update={"database_url": ""})
    (settings.data_dir / "models").symlink_to("/")
    subprocess.run(privacy.remedy(settings), shell=True, check=True)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (settings.data_dir, settings.data_dir / "up.lock")]
    assert modes == [0o711, 0o600]
    assert privacy.remedy(settings) == ""


def test_every_program_of_ours_makes_only_private_files_from_its_first_statement_on() -> None:
    root = Path(__file__).parents[2]
    others = {
        "app/engines/gguf_conversion.py",  # started by one of the programs, from which it inherits that
        "app/audit/verifier.py",  # an auditor's program, which writes nothing
    }
    programs = [file for part in ("app", "workers") for file in (root / part).rglob("*.py")]
    programs = [file for file in programs if '__name__ == "__main__"' in file.read_text()]
    assert len(programs) > 5
    for file in programs:
        main = file.read_text().partition("\ndef main(")[2]
        first = main.partition('"""\n')[2].strip().partition("\n")[0]
        name = str(file.relative_to(root))
        assert name in others or first == "processes.keep_private()", name


def test_a_start_that_is_refused_has_made_no_data_directory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    environment = {"SLACKWATER_DATA_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = python_module("app.cli.main", "up", "--attach", "http://127.0.0.1:9", "--port", port)
        done = subprocess.run(command, env=environment, check=False, umask=0o022, capture_output=True, text=True)
    assert f"port {port}" in done.stderr
    assert not folder.exists()
