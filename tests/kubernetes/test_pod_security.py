"""Claims about every pod that the chart renders, of whatever kind: a network policy selects it, and it has no needless rights."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.kubernetes.chart import ENGINE, EXAMPLES, MINIMAL, Manifest, Manifests, example, render

KEYS = {"database-url": "postgresql://x", "secret-key": "k" * 32}
GROUP = {"name": "large", "kind": "LeaderWorkerSet", "group": {"size": 2, "command": ["ray"]}}
EVERYTHING: dict[str, Any] = {
    **MINIMAL,
    "secrets": {"values": KEYS},
    "api": {"adminPort": 8702, "autoscaling": {"enabled": True}},
    "console": {"enabled": True, "url": "https://console.example.com"},
    "engines": [
        ENGINE,
        {**ENGINE, "name": "other", "kind": "Deployment", "plugin": False},
        {"name": "own", "image": "slackwater-engine", "managed": True, "model": "m"},
        {**ENGINE, **GROUP},
    ],
    "attach": [
        {"name": "named", "engines": [{"name": "a", "url": "http://vllm:8000"}]},
        {"name": "found", "find": {"selector": {"app": "vllm"}, "ports": [8000]}},
    ],
}
VALUES = {path.stem: yaml.safe_load(path.read_text()) for path in EXAMPLES} | {"everything": EVERYTHING}
NEW_POD = {
    "kind": "CronJob",
    "metadata": {"name": "slackwater-new"},
    "spec": {
        "jobTemplate": {"spec": {"template": {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c"}]}}}}
    },
}


def pods(found: Any, name: str = "") -> Iterator[tuple[str, Manifest]]:
    """Whatever has containers, wherever it stands."""
    if isinstance(found, dict):
        name = found["metadata"].get("name", name) if "kind" in found and "metadata" in found else name
        if isinstance(spec := found.get("spec"), dict) and "containers" in spec:
            yield name, found
        for each in found.values():
            yield from pods(each, name)
    elif isinstance(found, list):
        for each in found:
            yield from pods(each, name)


def open_to_all(manifests: Manifests) -> list[str]:
    """The pods that no policy for incoming connections selects."""
    policies = [each["spec"] for each in manifests.of("NetworkPolicy").values()]
    selectors = [each["podSelector"]["matchLabels"].items() for each in policies if "Ingress" in each["policyTypes"]]
    return [
        name
        for name, pod in pods(manifests.found)
        if not any(labels <= pod["metadata"]["labels"].items() for labels in selectors)
    ]


def too_mighty(manifests: Manifests) -> list[str]:
    """What the containers have that they should not: rights of root, capabilities, system calls."""
    found = []
    for name, pod in pods(manifests.found):
        if pod["spec"].get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
            found.append(f"{name}: seccomp")
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            context = container.get("securityContext", {})
            if context.get("capabilities") != {"drop": ["ALL"]}:
                found.append(f"{name}/{container['name']}: capabilities")
            if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
                found.append(f"{name}/{container['name']}: escalation")
            if context.get("runAsNonRoot") is not True:
                found.append(f"{name}/{container['name']}: root")
    return found


def roots_of(values: dict[str, Any]) -> list[str]:
    """The containers for which the values say that their image needs root."""
    named = [
        each for each in values.get("engines", ()) if each.get("securityContext", {}).get("runAsNonRoot", True) is False
    ]
    return [f"slackwater-{each['name']}/engine: root" for each in named for _ in range(1 + ("group" in each))]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_a_network_policy_selects_every_pod(values: dict[str, Any]) -> None:
    manifests = render(values)
    assert len(list(pods(manifests.found))) >= len(list(manifests.pods()))
    assert open_to_all(manifests) == []


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_container_is_without_capabilities_escalation_and_root_unless_its_values_name_root(
    values: dict[str, Any],
) -> None:
    assert too_mighty(render(values)) == roots_of(values)


def test_a_new_pod_without_policy_and_context_is_found_by_both_checks() -> None:
    more = Manifests([*render(EVERYTHING).found, NEW_POD])
    assert open_to_all(more) == ["slackwater-new"]
    assert {line.partition(":")[0] for line in too_mighty(more)} == {"slackwater-new", "slackwater-new/c"}


def test_the_pods_of_a_group_are_reached_by_engines_and_their_group_only() -> None:
    policy = render(example("vllm")).of("NetworkPolicy")["engine-group"]["spec"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "engine-group"
    [rule] = policy["ingress"]
    assert rule.keys() == {"from"}
    peers = [each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in rule["from"]]
    assert sorted(peers) == ["engine", "engine-group"]


def test_nobody_reaches_the_migration_and_its_policy_is_there_before_it() -> None:
    manifests = render(example("vllm"))
    policy, job = manifests.of("NetworkPolicy")["migrate"], manifests.of("Job")["migrate-1"]
    assert policy["spec"]["ingress"] == []
    hook, after = (each["metadata"]["annotations"] for each in (policy, job))
    assert hook["helm.sh/hook"] == after["helm.sh/hook"]
    assert int(hook["helm.sh/hook-weight"]) < int(after["helm.sh/hook-weight"])
    assert hook["helm.sh/hook-delete-policy"] == after["helm.sh/hook-delete-policy"]


@pytest.mark.parametrize(
    ("peers", "policy", "port"),
    [("consoleFrom", "console", "http"), ("metricsFrom", "steward", "metrics"), ("engineFrom", "engine", None)],
)
def test_an_empty_list_of_peers_lets_nobody_in(peers: str, policy: str, port: str | None) -> None:
    found = render({**EVERYTHING, "networkPolicy": {peers: []}}).of("NetworkPolicy")[policy]["spec"]["ingress"]
    assert all(rule["from"] for rule in found), "Kubernetes takes an empty list for everybody"
    assert port not in [each["port"] for rule in found for each in rule.get("ports", ())]


def test_what_an_engine_needs_beyond_the_defaults_its_pool_says() -> None:
    own = {"runAsNonRoot": False, "capabilities": {"add": ["IPC_LOCK"]}}
    manifests = render({**EVERYTHING, "engines": [{**ENGINE, **GROUP, "securityContext": own}]})
    found = [pod["spec"]["containers"][0]["securityContext"] for name, pod in manifests.pods() if "large" in name]
    expected = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": False,
        "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }
    assert found == [expected, expected]


def test_with_a_port_of_their_own_the_routes_of_operators_have_a_service_and_a_policy_of_their_own() -> None:
    operators = {"namespaceSelector": {"matchLabels": {"team": "platform"}}}
    values = {**MINIMAL, "api": {"adminPort": 8702}}
    closed = render(values)
    [container] = [each for name, each in closed.containers() if name == "api/api"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert (given["SLACKWATER_ADMIN_HOST"], given["SLACKWATER_ADMIN_PORT"]) == ("0.0.0.0", "8702")
    assert {"name": "admin", "containerPort": 8702} in container["ports"]
    public, own = (closed.of("Service")[name]["spec"] for name in ("api", "admin"))
    assert [each["targetPort"] for each in public["ports"]] == ["http"]
    assert own["ports"] == [{"name": "admin", "port": 8702, "targetPort": "admin"}]
    assert own["selector"] == public["selector"]
    assert own.get("type", "ClusterIP") == "ClusterIP"
    assert closed.of("NetworkPolicy")["admin"]["spec"]["ingress"] == []
    policies = render({**values, "networkPolicy": {"adminFrom": [operators]}}).of("NetworkPolicy")
    assert policies["admin"]["spec"]["podSelector"] == policies["api"]["spec"]["podSelector"]
    assert policies["admin"]["spec"]["ingress"] == [{"from": [operators], "ports": [{"port": "admin"}]}]
    assert policies["api"]["spec"]["ingress"] == [{"ports": [{"port": "http"}]}]


def test_without_that_port_nothing_of_it_is_there() -> None:
    manifests = render(MINIMAL)
    assert "admin" not in {*manifests.of("Service"), *manifests.of("NetworkPolicy")}
    assert "ADMIN" not in str(manifests.found)
