"""Claims about the cluster on a laptop: its script makes what the chart's values for it need. The script itself needs Docker."""

import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from testing.waiting import LIMIT_SECONDS
from tests.kubernetes.chart import ROOT, Manifest, example, render

SCRIPT = ROOT / "deploy" / "kind.sh"
OBJECTS = [*yaml.safe_load_all((ROOT / "deploy" / "kind" / "postgres.yaml").read_text())]


def test_postgresql_for_it_is_valid() -> None:
    for each in OBJECTS:
        kubernetes_validate.validate(each, "1.30", strict=True)


def test_the_script_can_be_parsed_and_every_file_that_it_names_exists() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    named = re.findall(r"deploy/[\w./-]+", SCRIPT.read_text())
    services = {f"deploy/slackwater-{part}" for part in ("api", "console")}  # of kubectl
    assert [name for name in named if name not in services and not (ROOT / name).exists()] == []


def test_an_unknown_command_is_refused_with_those_that_there_are() -> None:
    done = subprocess.run([SCRIPT, "start"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "deploy/kind.sh [create|delete]" in done.stderr


def test_its_secret_has_every_key_that_the_chart_and_postgresql_need_and_its_images_are_never_pulled() -> None:
    values = example("kind")
    made = set(re.findall(r"--from-literal=([\w-]+)=", SCRIPT.read_text()))
    pods = [pod["spec"] for _, pod in render(values).pods()] + [
        each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] == "StatefulSet"
    ]
    references = [
        variable["valueFrom"]["secretKeyRef"]
        for pod in pods
        for container in pod["containers"]
        for variable in container["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    ]
    assert {each["key"] for each in references if not each.get("optional")} == made
    assert f"secret={values['secrets']['existing']}" in SCRIPT.read_text()
    assert values["store"]["claim"] in {each["metadata"]["name"] for each in OBJECTS}
    ours = {container["image"] for pod in pods[:-1] for container in pod["containers"]}
    assert ours == set(re.findall(r"--tag (\S+)", SCRIPT.read_text()))
    assert values["image"]["pullPolicy"] == "Never"


@pytest.mark.parametrize("changed", ["slackwater:kind", "slackwater-engine:kind"])
def test_pods_are_replaced_by_those_of_a_new_image_although_its_tag_stays(tmp_path: Path, changed: str) -> None:
    ids = {"slackwater:kind": "sha256:1", "slackwater-engine:kind": "sha256:2"}
    first = pods_after(tmp_path, ids)
    assert pods_after(tmp_path, ids) == first
    new = pods_after(tmp_path, {**ids, changed: "sha256:3"})
    assert new.keys() == first.keys()
    assert [name for name in first if new[name] == first[name]] == []


def pods_after(folder: Path, ids: dict[str, str]) -> dict[str, Manifest]:
    """The pods that the script gives to Helm where Docker has these images. Docker and the cluster are stubs that say yes."""
    inspect = "".join(f'case " $* " in *" {name} "*) echo {number} ;; esac\n' for name, number in ids.items())
    asked = folder / "helm"
    for tool, body in {
        "docker": f'[ "$1 $2" != "image inspect" ] || {{\n{inspect}}}',
        "kind": "",
        "kubectl": "echo",
        "helm": f"printf '%s\\n' \"$@\" > '{asked}'",
    }.items():
        stub = folder / f"bin/{tool}"
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/sh\n{body}\n")
        stub.chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    subprocess.run([SCRIPT], check=True, env={**os.environ, "PATH": path}, capture_output=True, timeout=LIMIT_SECONDS)
    arguments = asked.read_text().splitlines()
    given = [after.partition("=") for before, after in pairwise(arguments) if before == "--set-string"]
    annotations = {name.removeprefix("podAnnotations."): value for name, _, value in given}
    pods = dict(render({**example("kind"), "podAnnotations": annotations}).pods())
    return {name: pod for name, pod in pods.items() if not name.startswith("migrate")}
