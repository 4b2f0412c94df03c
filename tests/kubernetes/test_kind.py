"""Claims about the cluster on a laptop: its script makes what the chart's values for it need. The script itself needs Docker."""

import re
import subprocess

import kubernetes_validate
import yaml

from tests.kubernetes.chart import ROOT, example, render

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
