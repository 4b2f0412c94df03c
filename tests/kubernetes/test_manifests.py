"""Claims about what the chart renders: what each part gets, how pods end, who reaches whom, what is watched and scaled."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from app.sealing import providers
from app.settings import PREFIX, Settings
from tests.kubernetes.chart import (
    EXAMPLES,
    MINIMAL,
    NAMESPACE,
    ROOT,
    Manifest,
    Manifests,
    example,
    ours,
    render,
    variables,
)
from tests.services.compose import services

ATTACHED = {**MINIMAL, "attach": [{"name": "vllm", "engines": [{"name": "a", "url": "http://vllm:8000"}]}]}
CALLED = ("api", "steward", "maintenance", "notifier")
_OTHER_NAMES = {"OTEL_EXPORTER_OTLP_ENDPOINT"}
_SECRETS = {  # that not every installation has, by the parts that read them
    name: {"SECRET_KEY_ACCEPTED", "DATABASE_DIRECT_URL", *further}
    for name, further in {
        "api": ("VAULT_TOKEN", "OPERATOR_TOKEN"),
        "console": ("VAULT_TOKEN", "OIDC_CLIENT_SECRET"),
        "steward": ("VAULT_TOKEN",),
        "maintenance": ("VAULT_TOKEN",),
        "notifier": (),
        "migrate": (),
        "gpu-worker": ("VAULT_TOKEN",),
    }.items()
}


def every_example() -> list[Manifests]:
    return [render(yaml.safe_load(path.read_text())) for path in EXAMPLES]


def settings(container: Manifest) -> set[str]:
    return {name for name in variables(container) if name.startswith(PREFIX)}


def test_each_part_gets_only_variables_that_a_setting_reads() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for manifests in every_example():
        for name, container in ours(manifests):
            assert settings(container) - known == set(), name


def test_each_part_gets_the_variables_of_its_service_in_compose() -> None:
    manifests = render(
        {
            **ATTACHED,
            "engines": [{"name": "own", "managed": True, "image": "slackwater-engine", "model": "m"}],
            "console": {"enabled": True, "url": "https://c.example.com"},
        }
    )
    composed = {
        name: set(each["environment"]) | {PREFIX + secret for secret in _SECRETS[name]}
        for name, each in services().items()
        if "build" in each
    }
    for part in ("api", "console", "steward", "maintenance", "notifier"):
        assert settings(manifests.container(f"{part}/{part}")) == composed[part] - _OTHER_NAMES, part
    console = PREFIX + "CONSOLE_URL"  # of the link that `slackwater console login` prints
    assert settings(manifests.container("migrate-1/migrate")) == composed["migrate"] - _OTHER_NAMES - {console}
    beyond = settings(manifests.container("own/gpu-worker")) - composed["gpu-worker"]
    assert composed["gpu-worker"] - _OTHER_NAMES <= settings(manifests.container("own/gpu-worker"))
    pods = ("ENGINE_PORT", "ARRIVAL_PORT", "ARRIVAL_URL", "WORKER_METRICS_PORT", "DRAIN_SECONDS")
    assert beyond == {PREFIX + name for name in pods}, "ports and addresses that the pod fixes"


def test_each_part_runs_the_command_of_its_service_in_compose() -> None:
    console = {"enabled": True, "url": "https://c.example.com"}
    manifests = render({**ATTACHED, "console": console, "migrate": {"roles": True}})
    commands = {name: each["command"] for name, each in services().items() if "build" in each}
    found = {each["command"][1]: each["command"] for _, each in ours(manifests)}
    assert found == commands


def test_secrets_reach_a_container_only_by_reference() -> None:
    for manifests in every_example():
        for name, container in ours(manifests):
            for each in container["env"]:
                if re.search("DATABASE_(DIRECT_)?URL|BROKER_URL|SECRET|TOKEN|API_KEY", each["name"]):
                    assert "secretKeyRef" in each["valueFrom"], (name, each["name"])


def test_with_database_roles_each_part_has_its_own_and_the_migration_is_the_owner() -> None:
    values = {**ATTACHED, "database": {"roles": True}, "console": {"enabled": True, "url": "https://c.example.com"}}
    manifests = render(values)
    keys = {
        name: each["valueFrom"]["secretKeyRef"]["key"]
        for name, container in ours(manifests)
        for each in container["env"]
        if each["name"] == "SLACKWATER_DATABASE_URL"
    }
    assert keys == {
        "api/api": "database-url-api",
        "console/console": "database-url-console",
        "maintenance/maintenance": "database-url-steward",
        "migrate-1/migrate": "database-url",
        "notifier/notifier": "database-url-notifier",
        "steward/steward": "database-url-steward",
        "vllm-a/gpu-worker": "database-url-worker",
    }


def test_only_the_three_parts_that_share_the_queues_get_their_url() -> None:
    values = {**ATTACHED, "console": {"enabled": True, "url": "https://c.example.com"}}
    having = {name for name, each in ours(render(values)) if "SLACKWATER_BROKER_URL" in variables(each)}
    assert having == {"steward/steward", "maintenance/maintenance", "notifier/notifier"}


def test_with_database_roles_the_three_parts_that_share_the_queues_do_not_start_without_their_url() -> None:
    values = {**ATTACHED, "database": {"roles": True}}
    needed = {
        name
        for name, container in ours(render(values))
        for each in container["env"]
        if each["name"] == "SLACKWATER_BROKER_URL" and not each["valueFrom"]["secretKeyRef"].get("optional")
    }
    assert needed == {"steward/steward", "maintenance/maintenance", "notifier/notifier"}


def test_the_folder_of_keys_is_where_every_part_that_seals_or_opens_looks_for_it_and_nowhere_else() -> None:
    values = {
        **ATTACHED,
        "keys": {"claim": "our-keys", "accessMode": "ReadWriteMany"},
        "console": {"enabled": True, "url": "https://c.example.com"},
        "engines": [{"name": "own", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "m"]}],
    }
    manifests = render(values)
    mounted = {
        name: each["mountPath"]
        for name, container in manifests.containers()
        for each in container["volumeMounts"]
        if claims(manifests.pod(name.split("/")[0])).get(each["name"]) == "our-keys"
    }
    [data] = {each["value"] for _, one in ours(manifests) for each in one["env"] if each["name"].endswith("DATA_DIR")}
    folder = unquote(urlsplit(providers.place(Settings(data_dir=Path(data)))).path)
    parts = ("api/api", "console/console", "steward/steward", "maintenance/maintenance")
    parts = (*parts, "own/gpu-worker", "vllm-a/gpu-worker")
    assert mounted == dict.fromkeys(parts, folder)


def claims(pod: Manifest) -> dict[str, str]:
    """The volumes of a pod that are claims, with their claims' names."""
    volumes = ((each["name"], each.get("persistentVolumeClaim")) for each in pod["spec"]["volumes"])
    return {name: claim["claimName"] for name, claim in volumes if claim}


def test_a_worker_of_each_kind_takes_a_volume_with_the_file_that_tells_when_its_machine_will_go() -> None:
    notice = {"name": "notice", "hostPath": {"path": "/run/notice"}}
    mount = {"name": "notice", "mountPath": "/notice", "readOnly": True}
    common = {"image": "i", "volumes": [notice], "worker": {"volumeMounts": [mount]}}
    values = {
        **MINIMAL,
        "engines": [
            {"name": "beside", "args": ["--model", "m"], **common},
            {"name": "own", "managed": True, "model": "m", **common},
        ],
        "attach": [{**ATTACHED["attach"][0], "volumes": [notice], "volumeMounts": [mount]}],
    }
    manifests = render(values)
    for name in ("beside", "own", "vllm-a"):
        assert notice in manifests.pod(name)["spec"]["volumes"], name
        assert mount in manifests.container(f"{name}/gpu-worker")["volumeMounts"], name
    assert mount not in manifests.container("beside/engine")["volumeMounts"]


def test_the_migration_runs_before_everything_and_needs_nothing_that_comes_after_it() -> None:
    manifests = render(
        {
            **example("kind"),
            "models": "x = 1",
            "secrets": {"values": {"database-url": "postgresql://x", "secret-key": "k" * 32}},
        }
    )
    job, secret = manifests.of("Job")["migrate-1"], manifests.of("Secret")["secrets"]
    hooks = [each["metadata"]["annotations"] for each in (secret, job)]
    assert all(hook["helm.sh/hook"] == "pre-install,pre-upgrade" for hook in hooks)
    assert [int(hook["helm.sh/hook-weight"]) for hook in hooks] == [-5, 0]
    pod = job["spec"]["template"]["spec"]
    assert {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]} == {"emptyDir"}
    assert "serviceAccountName" not in pod
    assert pod["restartPolicy"] == "Never"


def engine(**changes: Any) -> Manifests:
    pool = {"name": "llama", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "m"], **changes}
    return render({**MINIMAL, "engines": [pool]})


@pytest.mark.parametrize("spot", [False, True])
def test_an_engine_outlives_the_drain_of_its_worker_and_the_pod_outlives_both(*, spot: bool) -> None:
    spec = engine(spot=spot).pod("llama")["spec"]
    server, worker = spec["containers"]
    drain = next(int(each["value"]) for each in worker["env"] if each["name"] == "SLACKWATER_DRAIN_SECONDS")
    pause, grace = server["lifecycle"]["preStop"]["sleep"]["seconds"], spec["terminationGracePeriodSeconds"]
    assert "lifecycle" not in worker, "the worker drains at once"
    assert drain < pause < grace
    assert grace == pause + 5
    assert grace <= 15 if spot else pause >= drain + 15, "a kubelet that shuts its node down leaves pods 15 seconds"


def test_the_worker_beside_an_engine_is_an_ordinary_container_that_does_not_decide_whether_the_engine_is_ready() -> (
    None
):
    spec = engine().pod("llama")["spec"]
    assert [each["name"] for each in spec["containers"]] == ["engine", "gpu-worker"]
    assert [each["name"] for each in spec["initContainers"]] == ["plugin"]
    assert "restartPolicy" not in spec["initContainers"][0]
    server, worker = spec["containers"]
    assert [name for name in worker if name.endswith("Probe")] == ["livenessProbe"]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= server.keys()


def test_a_part_that_lives_and_does_nothing_is_started_anew() -> None:
    for manifests in every_example():
        probed = {each["name"]: each for _, each in manifests.containers()}
        for name in {"steward", "notifier", "gpu-worker"} & probed.keys():
            assert probed[name]["livenessProbe"]["httpGet"] == {"path": "/live", "port": "metrics"}


def test_engine_and_worker_share_a_page_in_memory_as_one_group_and_the_plug_in_is_where_the_image_has_it() -> None:
    spec = engine().pod("llama")["spec"]
    server, worker = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["pages"]["emptyDir"]["medium"] == "Memory"
    assert spec["securityContext"]["fsGroup"]
    for container in (server, worker):
        environment = {each["name"]: each.get("value") for each in container["env"]}
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert environment["SLACKWATER_PAGE_DIR"] == mounts["pages"]
    assert {each["name"]: each["value"] for each in server["env"]}["PYTHONPATH"] == "/plugin"
    source = spec["initContainers"][0]["command"][2].removesuffix("/.")
    assert f"--target {source.removeprefix('/opt/slackwater/')} " in (ROOT / "Dockerfile").read_text()


def test_without_the_plug_in_nothing_of_it_is_there() -> None:
    spec = engine(plugin=False).pod("llama")["spec"]
    assert "initContainers" not in spec
    assert not re.search("/pages|/plugin|HARVEST", str(spec))


def test_each_port_that_is_named_by_a_probe_a_service_or_a_policy_is_a_port_of_the_container() -> None:
    for manifests in every_example():
        for name, container in manifests.containers():
            ports = {each["name"] for each in container.get("ports", ())}
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if kind in container:
                    assert container[kind]["httpGet"]["port"] in ports, name
        for kind, selector in (("Service", "selector"), ("NetworkPolicy", "podSelector")):
            for name, each in manifests.of(kind).items():
                labels = each["spec"][selector]
                chosen = selected(manifests, labels.get("matchLabels", labels))
                if each["metadata"]["labels"].get("app.kubernetes.io/component") == "discovery":
                    assert not chosen, "the engines are not of this chart"
                    continue
                wanted = ports_of(each)
                for pod in chosen:
                    have = {port["name"] for one in pod["spec"]["containers"] for port in one.get("ports", ())}
                    assert wanted <= have, (kind, name)


def selected(manifests: Manifests, labels: dict[str, str]) -> list[Manifest]:
    return [pod for _, pod in manifests.pods() if labels.items() <= pod["metadata"]["labels"].items()]


def ports_of(each: Manifest) -> set[str]:
    if each["kind"] == "Service":
        return {port["targetPort"] for port in each["spec"]["ports"]}
    return {port["port"] for rule in each["spec"]["ingress"] for port in rule.get("ports", ())}


def test_services_selectors_and_budgets_find_pods_of_their_own_part_only() -> None:
    for manifests in every_example():
        for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            for name, each in manifests.of(kind).items():
                chosen = selected(manifests, each["spec"]["selector"]["matchLabels"])
                assert len(chosen) == 1, (kind, name)


def test_batch_only_pools_have_no_budget_of_disruptions_and_everything_that_callers_wait_for_has() -> None:
    manifests = render(example("vllm"))
    assert set(manifests.of("PodDisruptionBudget")) == {*CALLED, "chat", "large"}
    assert all(each["spec"]["maxUnavailable"] == 1 for each in manifests.of("PodDisruptionBudget").values())
    assert set(render(example("llm-d")).of("PodDisruptionBudget")) == {*CALLED, "decode"}


def test_engines_and_workers_are_reached_by_the_api_and_nobody_else_unless_the_values_say_so() -> None:
    pools = [pool for pool in example("vllm")["engines"] if "group" not in pool]
    policies = render({**example("vllm"), "engines": pools}).of("NetworkPolicy")
    assert set(policies) == {*CALLED, "console", "engine", "engine-group", "migrate", "worker"}
    [served, announced, scraped] = policies["engine"]["spec"]["ingress"]
    parts = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in served["from"]]
    assert parts == ["api", "worker"]
    assert [each["ports"][0]["port"] for each in (served, announced, scraped)] == ["http", "metrics", "metrics"]
    caller = {"namespaceSelector": {"matchLabels": {"team": "chat"}}}
    opened = render({**example("vllm"), "networkPolicy": {"engineFrom": [caller]}}).of("NetworkPolicy")
    assert caller in opened["engine"]["spec"]["ingress"][0]["from"]


def test_the_console_and_those_who_read_metrics_and_scale_reach_the_api_also_where_the_values_say_who_else_may() -> (
    None
):
    caller, reader = ({"namespaceSelector": {"matchLabels": {"team": team}}} for team in ("chat", "keda"))
    values = {**ATTACHED, "console": {"enabled": True, "url": "https://c.example.com"}}
    manifests = render({**values, "networkPolicy": {"apiFrom": [caller], "metricsFrom": [reader]}})
    [console] = [container for name, container in ours(manifests) if name == "console/console"]
    [url] = [each["value"] for each in console["env"] if each["name"] == "SLACKWATER_URL"]
    host, port = url.removeprefix("http://").split(":")
    assert int(port) in [
        each["port"] for each in manifests.of("Service")[host.removeprefix("slackwater-")]["spec"]["ports"]
    ]
    [rule] = manifests.of("NetworkPolicy")["api"]["spec"]["ingress"]
    own = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if peer not in (caller, reader)]
    assert caller in rule["from"]
    assert reader in rule["from"]
    assert [labels["app.kubernetes.io/component"] for labels in own] == ["console"]


def test_the_pods_of_an_engine_over_several_nodes_reach_its_leader_at_any_port() -> None:
    manifests = render(example("vllm"))
    *_, rule = manifests.of("NetworkPolicy")["engine"]["spec"]["ingress"]
    assert rule.keys() == {"from"}
    [peer] = rule["from"]
    assert selected(manifests, peer["podSelector"]["matchLabels"]) == [manifests.pod("large/workerTemplate")]


def test_prometheus_finds_every_part_under_the_job_that_the_alerts_know() -> None:
    manifests = render(example("vllm"))
    monitor, parts = manifests.of("ServiceMonitor")["api"], manifests.of("PodMonitor")["parts"]
    expected = yaml.safe_load((ROOT / "deploy" / "observability" / "prometheus.yml").read_text())["scrape_configs"]
    assert monitor["spec"]["jobLabel"] == parts["spec"]["jobLabel"] == "slackwater/job"
    [service] = [
        each
        for each in manifests.of("Service").values()
        if monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    scraped = list(selected(manifests, parts["spec"]["selector"]["matchLabels"]))
    jobs = {
        pod["metadata"]["labels"]["slackwater/job"] for pod in scraped if "slackwater/job" in pod["metadata"]["labels"]
    }
    assert jobs | {service["metadata"]["labels"]["slackwater/job"]} == {each["job_name"] for each in expected}
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"]["key"] == "metrics-token"
    assert "authorization" not in parts["spec"]["podMetricsEndpoints"][0], "the API's token is not shown to other parts"


def test_rules_and_dashboards_are_those_of_the_repository_unchanged() -> None:
    manifests = render(example("vllm"))
    folder = ROOT / "deploy" / "observability"
    rules = {name: each["spec"] for name, each in manifests.of("PrometheusRule").items()}
    assert rules == {file.stem: yaml.safe_load(file.read_text()) for file in (folder / "rules").glob("*.yml")}
    boards = {key: text for each in manifests.of("ConfigMap").values() for key, text in each["data"].items()}
    for file in (folder / "grafana" / "dashboards").glob("*.json"):
        assert boards[f"slackwater-{file.name}"] == file.read_text()


def test_a_pool_is_scaled_by_the_demand_for_its_model_and_keeps_its_engines_while_that_is_not_known() -> None:
    manifests = render(example("vllm"))
    [(name, scaled)] = manifests.of("ScaledObject").items()
    spec = scaled["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"slackwater-{name}"}
    assert "replicas" not in manifests.of("StatefulSet")[name]["spec"], "Helm would undo the scale at each upgrade"
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 16)
    assert spec["fallback"]["behavior"] == "currentReplicas"
    [trigger] = spec["triggers"]
    assert trigger["metadata"]["url"] == (
        f"http://slackwater-api.{NAMESPACE}.svc:8700/scale/meta-llama/Llama-3.1-8B-Instruct?start_seconds=300"
    )
    assert trigger["authenticationRef"]["name"] in {
        f"slackwater-{name}" for name in manifests.of("TriggerAuthentication")
    }


def test_a_deployment_of_another_chart_can_be_scaled_by_the_demand() -> None:
    [(_, scaled)] = render(example("llm-d")).of("ScaledObject").items()
    assert scaled["spec"]["scaleTargetRef"]["name"] == "nightly-modelservice"


def test_found_engines_have_a_headless_service_with_the_selector_and_all_ports_of_their_pool() -> None:
    manifests = render(example("llm-d"))
    service = manifests.of("Service")["decode"]["spec"]
    pool = example("llm-d")["attach"][0]["find"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == pool["selector"]
    assert [each["port"] for each in service["ports"]] == pool["ports"]
    environment = {each["name"]: each.get("value") for each in manifests.container("decode/gpu-worker")["env"]}
    assert environment["SLACKWATER_ENGINES"] == f"dns://slackwater-decode.{NAMESPACE}.svc:8000,8001"


def test_names_of_a_release_with_another_name_do_not_meet_those_of_the_first() -> None:
    first, second = (
        {(each["kind"], each["metadata"]["name"]) for each in render(example("vllm"), name).found}
        for name in ("slackwater", "other")
    )
    assert not first & second
    assert all(len(name) <= 63 for _, name in second)
