"""Claims about the chart's form: Helm finds no fault in it, and Kubernetes and the operators would accept what it renders."""

from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import kubernetes_validate
import pytest
import yaml

from app.engines import catalogue
from tests.kubernetes.chart import CHART, EXAMPLES, MINIMAL, ROOT, Manifests, chart, crd_schema, render
from workers.engine import __version__

OLDEST = "1.30"  # Chart.yaml's kubeVersion
EACH = pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
OURS = {path.stem for path in (Path(__file__).parent / "crds").glob("*.json")}


def values_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def faults(manifests: Manifests, version: str) -> list[str]:
    found = []
    for each in manifests.found:
        name = f"{each['kind']} {each['metadata']['name']}"
        try:
            if each["kind"] in OURS:
                jsonschema.validate(each, crd_schema(each["kind"]))
            else:
                kubernetes_validate.validate(each, version, strict=True)
        except jsonschema.ValidationError as error:
            found.append(f"{name}: {error.message} at {list(error.absolute_path)}")
    for name, pod in manifests.pods():  # those inside a custom resource, too
        whole = {"apiVersion": "v1", "kind": "Pod", **pod}
        try:
            kubernetes_validate.validate(whole, version, strict=True)
        except jsonschema.ValidationError as error:
            found.append(f"pod of {name}: {error.message}")
    return found


@EACH
def test_helm_lints_each_example_without_a_warning(values: Path) -> None:
    report = helm.lint(CHART, values=values_of(values), strict=True)
    assert not report["errors"]
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@EACH
@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_each_example_is_valid_for_the_oldest_and_the_newest_kubernetes(values: Path, version: str) -> None:
    assert faults(render(values_of(values)), version) == []


def test_a_typing_error_in_any_object_would_be_found() -> None:
    manifests = render(values_of(CHART / "values" / "vllm.yaml"))
    for each in manifests.found:
        if "spec" in each:
            each["spec"]["tpyo"] = 1
    kinds = {each["kind"] for each in manifests.found if "spec" in each}
    assert {fault.split()[0] for fault in faults(manifests, OLDEST)} == kinds


def test_the_least_values_are_a_secret_and_a_store() -> None:
    assert faults(render(MINIMAL), OLDEST) == []


@EACH
def test_a_catalogue_in_an_example_is_one_that_a_part_reads(values: Path, tmp_path: Path) -> None:
    text = values_of(values).get("models")
    if not text:
        return
    file = tmp_path / "models.toml"
    file.write_text(text)
    known = catalogue.load(file)
    pools = [*values_of(values).get("engines", ()), *values_of(values).get("attach", ())]
    zero = [pool["model"] for pool in pools if pool.get("scaling", {}).get("min") == 0]
    assert zero
    assert all(known.resolve(model) for model in zero), "the scale of a model that nobody knows yet is not answered"


def test_the_chart_has_the_version_of_the_code_and_no_file_of_its_own_for_rules_and_dashboards() -> None:
    assert chart().metadata["appVersion"] == __version__
    assert chart().metadata["version"] == __version__.replace(".dev", "-dev.")  # Helm wants SemVer
    deploy = ROOT / "deploy" / "observability"
    assert (CHART / "files" / "rules").resolve() == deploy / "rules"
    assert (CHART / "files" / "dashboards").resolve() == deploy / "grafana" / "dashboards"
