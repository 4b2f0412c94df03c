"""The chart, rendered by Helm itself (its Go library), and what its containers get."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "slackwater"
EXAMPLES = sorted((CHART / "values").glob("*.yaml"))
RELEASE, NAMESPACE = "slackwater", "batch"
MINIMAL: Mapping[str, Any] = {"secrets": {"existing": "mine"}, "store": {"url": "s3://bucket/x"}}
ENGINE: Mapping[str, Any] = {"name": "llama", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "m"]}

Manifest = dict[str, Any]


@cache
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


def example(name: str) -> dict[str, Any]:
    """The values of one of the examples."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values" / f"{name}.yaml").read_text())
    return values


def render(values: Mapping[str, Any], release: str = RELEASE) -> "Manifests":
    """What `helm install` would send to the cluster. Raises HelmValuesError where the schema refuses the values."""
    text = _text(json.dumps(values), release)
    return Manifests([each for each in yaml.load_all(text, yaml.CSafeLoader) if each])


@cache
def _text(values: str, release: str) -> str:
    given = json.loads(values)
    chart().validate_schema(given)
    texts = chart().render(given, name=release, namespace=NAMESPACE, is_install=True)
    return "\n---\n".join(text for name, text in sorted(texts.items()) if name.endswith(".yaml"))


def refusal(values: Mapping[str, Any]) -> str:
    """Why Helm refuses the values; empty: it takes them."""
    try:
        render(values)
    except helm.HelmError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Manifests:
    """The objects of a release."""

    found: list[Manifest]

    def of(self, kind: str) -> dict[str, Manifest]:
        """The objects of a kind by their names without the release's."""
        return {
            each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each for each in self.found if each["kind"] == kind
        }

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Every template of a pod, with the name of what creates it."""
        for each in self.found:
            name, spec = each["metadata"]["name"].removeprefix(f"{RELEASE}-"), each.get("spec", {})
            if "template" in spec:
                yield name, spec["template"]
            for part, template in spec.get("leaderWorkerTemplate", {}).items():
                if part.endswith("Template"):
                    yield f"{name}/{part}", template

    def pod(self, name: str) -> Manifest:
        return dict(self.pods())[name]

    def containers(self) -> Iterator[tuple[str, Manifest]]:
        """Every container, with the names of its pod's creator and its own."""
        for name, pod in self.pods():
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                yield f"{name}/{container['name']}", container

    def container(self, name: str) -> Manifest:
        return dict(self.containers())[name]


@dataclass(frozen=True)
class Node:
    """What a kubelet knows: values of secrets by their keys, and of fields of the pod."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    def environment(self, container: Manifest) -> dict[str, str]:
        """The variables that the container gets. A name of an earlier variable in `$(…)` is replaced by its value."""
        found: dict[str, str] = {}
        for each in container.get("env", ()):
            value = self._value(each)
            if value is not None:
                found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
        return found

    def _value(self, variable: Manifest) -> str | None:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            return self.fields[source["fieldRef"]["fieldPath"]]
        if key := source.get("secretKeyRef"):
            return self.secrets.get(key["key"]) if key.get("optional") else self.secrets[key["key"]]
        value = variable.get("value", "")
        assert isinstance(value, str), variable
        return value


def ours(manifests: Manifests) -> list[tuple[str, Manifest]]:
    """The containers that run a part of Slackwater."""
    return [(name, each) for name, each in manifests.containers() if each.get("command", [""])[0] == "slackwater"]


def variables(container: Manifest) -> set[str]:
    """The names of the variables that a container gets."""
    return {each["name"] for each in container.get("env", ())}


def crd_schema(kind: str) -> dict[str, Any]:
    """The JSON schema of a custom resource: the fields of its public source."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent / "crds" / f"{kind}.json").read_text())
    return schema
