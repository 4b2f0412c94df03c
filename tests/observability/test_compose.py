"""Claims about the observability profile of docker-compose.yml, which needs Docker to run: its files name each other."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from app.access import origin
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS
from tests.needs import unable
from tests.observability.support import DEPLOY, ROOT, dashboards
from tests.services.compose import VALUES

PROFILE = "observability"


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def mounted(service: dict[str, Any]) -> dict[str, Path]:
    """Where in its container a service finds which of our files."""
    volumes = [volume.split(":") for volume in service["volumes"]]
    return {target: ROOT / source for source, target, *_ in volumes if source.startswith(".")}


def test_the_profile_adds_three_services_and_nothing_else_has_a_profile() -> None:
    found = {name for name, service in services().items() if service.get("profiles") == [PROFILE]}
    assert found == {"prometheus", "grafana", "otel-collector"}
    assert not [name for name, service in services().items() if "profiles" in service and name not in found]


def test_every_file_that_is_mounted_exists_and_every_image_has_a_version() -> None:
    for name, service in services().items():
        if "profiles" in service:
            assert not [path for path in mounted(service).values() if not path.exists()], name
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), name
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_prometheus_scrapes_every_part_at_the_port_of_its_page() -> None:
    default = {name: field.default for name, field in Settings.model_fields.items()}
    expected = {
        f"api:{default['port']}",
        f"steward:{default['steward_metrics_port']}",
        f"maintenance:{default['maintenance_metrics_port']}",
        f"notifier:{default['notifier_metrics_port']}",
        f"gpu-worker:{default['worker_metrics_port']}",
    }
    jobs = read(DEPLOY / "prometheus.yml")["scrape_configs"]
    targets = [target for job in jobs for each in job["static_configs"] for target in each["targets"]]
    assert sorted(targets) == sorted(expected)
    assert all(job["job_name"].startswith("slackwater-") for job in jobs)
    parts = services()
    for target in targets:
        assert parts[target.split(":")[0]]["environment"]["SLACKWATER_HOST"] == "0.0.0.0"


def test_grafana_finds_prometheus_and_the_dashboards_where_compose_mounts_them() -> None:
    grafana, provisioning = services()["grafana"], DEPLOY / "grafana" / "provisioning"
    [source] = read(provisioning / "datasources" / "prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    used = set(re.findall(r'"uid": "([^"]+)"', json.dumps([d["panels"] for d in dashboards().values()])))
    assert used == {source["uid"]}
    [provider] = read(provisioning / "dashboards" / "slackwater.yml")["providers"]
    folder = mounted(grafana)[provider["options"]["path"]]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (folder / home.name).exists()
    assert str(home.parent) == provider["options"]["path"]


def test_every_part_of_an_installation_is_a_service_and_browsers_of_this_machine_alone_reach_the_console() -> None:
    parts = services()
    commands = {tuple(service.get("command", ())) for service in parts.values()}
    assert commands >= {
        ("slackwater", part) for part in ("api", "console", "steward", "maintenance", "notifier", "gpu-worker")
    }
    console = parts["console"]
    given = {name.removeprefix("SLACKWATER_").lower(): value for name, value in console["environment"].items()}
    settings = Settings.model_construct(**{name: given[name] for name in ("console_host", "console_url")})
    assert not origin.exposed(settings)
    assert console["ports"] == ["127.0.0.1:8701:8701"]
    assert origin.of(settings) == "http://127.0.0.1:8701"


def test_docker_accepts_the_file_with_and_without_the_profile() -> None:
    def compose(*words: str) -> subprocess.CompletedProcess[str]:
        given = {**os.environ, **VALUES}
        return subprocess.run(
            ["docker", "compose", *words],
            cwd=ROOT,
            env=given,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )

    if not shutil.which("docker") or compose("version").returncode:
        unable("there is no `docker compose` here: the file is checked as YAML only")
    for profile in ((), ("--profile", PROFILE)):
        done = compose(*profile, "config", "--quiet")
        assert done.returncode == 0, done.stderr


def test_every_pipeline_of_the_collector_uses_what_it_defines() -> None:
    collector = read(DEPLOY / "otel-collector.yml")
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= collector[kind].keys()
