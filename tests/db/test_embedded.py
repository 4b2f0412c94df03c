"""The embedded server is accessible to its owner only, and no folder is opened for it."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from structlog.testing import capture_logs

from app import processes
from app.db import cluster, embedded
from app.settings import Settings
from tests.needs import only, unable

root_only = only(os.geteuid() == 0, "only as root the server has a user of its own")
NOBODY = 65534
CHECK = """
import psycopg, sys
from pathlib import Path
from app.db import embedded
from app.settings import Settings
settings = Settings(data_dir=Path(sys.argv[1]))
with psycopg.connect(embedded.start(settings)) as conn:
    print(conn.execute("select current_user").fetchone()[0])
embedded.stop(settings, "immediate")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that only its owner may enter, in none that another test looks at or opens."""
    with tempfile.TemporaryDirectory(prefix="slackwater-home-") as outer:
        folder = Path(outer) / "home"
        folder.mkdir(mode=0o700)
        yield folder


@pytest.fixture
def private(home: Path) -> Iterator[Settings]:
    """An installation in that folder."""
    settings = Settings(data_dir=home / "data")
    yield settings
    embedded.stop(settings, "immediate")
    found = cluster.place(settings).cluster
    if cluster.OUTSIDE in found.parents:
        shutil.rmtree(found.parent)


def can_run_python(environment: dict[str, str]) -> bool:
    """Whether a user who is not root can run this interpreter, with its packages."""
    command = [sys.executable, "-c", "import psycopg"]
    try:
        done = subprocess.run(
            command, check=False, env=environment, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[]
        )
    except PermissionError:
        return False
    return done.returncode == 0


def user_of(url: str) -> str:
    with psycopg.connect(url) as conn:
        row = conn.execute("select current_user").fetchone()
    assert row is not None
    return str(row[0])


def test_in_a_private_home_it_starts_opens_no_folder_and_trusts_nobody(private: Settings, home: Path) -> None:
    before = {folder: folder.stat().st_mode for folder in (home, home.parent)}
    assert user_of(embedded.start(private)) == "postgres"
    assert {folder: folder.stat().st_mode for folder in before} == before
    for folder in cluster.place(private):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "trust" not in (cluster.place(private).cluster / "pg_hba.conf").read_text()
    with psycopg.connect(embedded.database_url(private)) as conn:
        methods = conn.execute("select auth_method from pg_hba_file_rules").fetchall()
    assert methods == [("peer",)]


def test_a_second_start_uses_the_running_server_and_a_start_after_a_stop_finds_its_data(private: Settings) -> None:
    url = embedded.start(private)
    with psycopg.connect(url) as conn:
        conn.execute("create table kept (n int)")
    assert embedded.start(private) == url
    embedded.stop(private)
    with psycopg.connect(embedded.start(private)) as conn:
        conn.execute("select n from kept")


def test_it_looks_for_dead_rows_every_ten_seconds(server_settings: Settings) -> None:
    with psycopg.connect(embedded.database_url(server_settings)) as conn:
        assert conn.execute("show autovacuum_naptime").fetchone() == ("10s",)


@root_only
def test_under_root_the_cluster_of_a_private_folder_is_outside_it_and_a_file_there_names_the_folder(
    private: Settings,
) -> None:
    embedded.start(private)
    found = cluster.place(private).cluster
    assert found.parent.parent == cluster.OUTSIDE
    assert found.owner() == cluster.SERVER_USER
    assert (found.parent / "data_dir").read_text().strip() == str(private.data_dir)


@root_only
def test_a_former_cluster_that_its_server_cannot_enter_any_more_is_moved_with_its_data_and_said_so(
    private: Settings,
) -> None:
    url = embedded.start(private)
    with psycopg.connect(url) as conn:
        conn.execute("create table kept (n int)")
    embedded.stop(private)
    outside, former = cluster.place(private).cluster, private.data_dir / "postgres"
    outside.rename(former)
    with capture_logs() as told:
        url = embedded.start(private)
    assert told[0] == {
        "event": "database.cluster_moved",
        "former": str(former),
        "folder": str(outside),
        "log_level": "info",
    }
    assert not former.exists()
    with psycopg.connect(url) as conn:
        conn.execute("select n from kept")


@root_only
def test_a_new_data_directory_leaves_the_cluster_of_a_removed_one_at_its_path_and_names_it(private: Settings) -> None:
    with psycopg.connect(embedded.start(private)) as conn:
        conn.execute("create table kept (n int)")
    embedded.stop(private)
    former = cluster.place(private).cluster
    shutil.rmtree(private.data_dir)
    try:
        with capture_logs() as told, psycopg.connect(embedded.start(private)) as conn:
            assert conn.execute("select to_regclass('kept')").fetchone() == (None,)
        assert [each["folder"] for each in told if each["event"] == "database.former_left"] == [str(former)]
        embedded.stop(private)
        with capture_logs() as told:
            embedded.start(private)
        assert "database.former_left" not in [each["event"] for each in told], "once is enough"
        assert (former / "PG_VERSION").exists()
    finally:
        shutil.rmtree(former.parent)


@root_only
def test_a_kill_before_a_data_directory_has_its_identity_adopts_no_other_cluster(private: Settings) -> None:
    private.data_dir.mkdir()
    (private.data_dir / cluster.LOCK).touch()
    (private.data_dir / f"{cluster._IDENTITY}.new").touch()
    former = cluster.OUTSIDE / cluster._hash(private.data_dir.resolve()) / "postgres"
    assert cluster.place(private).cluster != former
    embedded.start(private)
    assert cluster.place(private).cluster != former
    assert (private.data_dir / cluster._IDENTITY).read_text()


@root_only
def test_of_two_clusters_for_one_data_directory_none_is_touched(private: Settings) -> None:
    embedded.start(private)
    embedded.stop(private)
    former = private.data_dir / "postgres"
    shutil.copytree(cluster.place(private).cluster, former)
    try:
        with pytest.raises(PermissionError, match="move away the one"):
            embedded.start(private)
    finally:
        shutil.rmtree(former)


@root_only
def test_a_user_with_a_private_home_has_the_cluster_in_the_data_directory(home: Path) -> None:
    home.parent.chmod(0o711)
    os.chown(home, NOBODY, NOBODY)
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(home), "PATH": os.environ["PATH"]}
    if not can_run_python(environment):
        unable(f"user {NOBODY} cannot run {sys.executable}: it lies below a folder that is private to root")
    command = [sys.executable, "-c", CHECK, str(home / "data")]
    done = subprocess.run(
        command,
        check=False,
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
    )
    assert done.stdout == "postgres\n", done.stderr
    assert stat.S_IMODE((home / "data" / "postgres").stat().st_mode) == 0o700


@root_only
def test_programs_that_the_servers_user_cannot_read_are_copied_once_by_all_who_start_at_once(home: Path) -> None:
    version = embedded._programs(embedded._wheel()).parent
    package = home / "site-packages" / version.parent.name
    shutil.copytree(version, package / version.name, symlinks=True)
    libraries = version.parent.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, package.with_name(libraries.name), symlinks=True)
    with ThreadPoolExecutor(4) as threads:
        found, *others = threads.map(cluster.programs, [package / version.name] * 4)
    try:
        assert others == [found] * 3
        assert cluster.OUTSIDE in found.parents
        owner = pwd.getpwnam(cluster.SERVER_USER)
        command = [found / "postgres", "--version"]
        said = subprocess.check_output(
            command, user=owner.pw_uid, group=owner.pw_gid, extra_groups=[], cwd="/", text=True
        )
        assert "PostgreSQL" in said
    finally:
        shutil.rmtree(next(folder for folder in found.parents if folder.parent == cluster.OUTSIDE))


@root_only
def test_the_servers_user_is_created_once_by_all_who_start_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[str] = []

    def known(name: str) -> str:
        if name not in created:
            raise KeyError(name)
        return name

    def create(name: str) -> None:
        if name not in created:
            time.sleep(0.05)
            created.append(name)

    monkeypatch.setattr(cluster, "OUTSIDE", tmp_path / "outside")
    monkeypatch.setattr(embedded, "pwd", SimpleNamespace(getpwnam=known))
    with ThreadPoolExecutor(4) as threads:
        owners = list(threads.map(embedded._owner, [SimpleNamespace(ensure_user_exists=create)] * 4))
    assert (owners, created) == ([cluster.SERVER_USER] * 4, [cluster.SERVER_USER])


def test_a_socket_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "OUTSIDE", tmp_path / "outside")
    settings = Settings(data_dir=tmp_path / ("long" * 30))
    settings.data_dir.mkdir()
    cluster.identify(settings.data_dir)
    found = cluster.place(settings)
    assert found.socket != found.cluster
    open_to_all = found.socket
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    try:
        with pytest.raises(PermissionError, match=r"that only \w+ may enter"):
            embedded.start(settings)
    finally:
        open_to_all.rmdir()


def test_files_that_a_part_creates_are_private_to_its_user(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        processes.keep_private()
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "folder")]
    assert modes == [0o600, 0o700]


def test_a_file_that_the_user_asked_for_has_the_modes_of_the_users_files(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from app import processes; from app.cli.results import write_lines;"
        "processes.keep_private(); write_lines(Path('asked'), []); Path('ours').touch()"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, umask=0o027)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("asked", "ours")]
    assert modes == [0o640, 0o600]


def test_the_servers_log_quotes_no_row(server_settings: Settings, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create table kept (body text constraint short check (length(body) < 5))")
        with pytest.raises(psycopg.errors.CheckViolation, match="planted words"):
            conn.execute("insert into kept values (%s)", ("planted words",))
        with pytest.raises(psycopg.errors.CheckViolation), conn.cursor().copy("copy kept from stdin") as copy:
            copy.write("planted words\n")
    text = embedded.log_file(server_settings).read_text(errors="replace")
    assert 'violates check constraint "short"' in text
    assert "planted" not in text
