"""Claims about what the chart refuses, before anything reaches the cluster."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from pydantic import SecretStr

from app.settings import PREFIX, Settings
from tests.kubernetes.chart import ENGINE, MINIMAL, ours, refusal, render, variables

FOLDER = {"url": "file:///objects", "claim": "objects"}
ONE = {part: {"replicas": 1} for part in ("api", "steward", "maintenance", "notifier")}
SCALING = {"enabled": True, "min": 1, "max": 4}
KEYS = {"database-url": "postgresql://x", "secret-key": "k" * 32}
ROLES = {f"database-url-{part}": "postgresql://x" for part in ("api", "worker", "steward", "notifier", "console")}
URL = "http://vllm:8000"
CALLER = {"namespaceSelector": {"matchLabels": {"team": "chat"}}}


def merged(*several: dict[str, Any]) -> dict[str, Any]:
    found = deepcopy(dict(MINIMAL))
    for each in several:
        for name, value in each.items():
            found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def pool(**changes: Any) -> dict[str, Any]:
    return {"engines": [{**ENGINE, **changes}]}


def attached(**changes: Any) -> dict[str, Any]:
    return {"attach": [{"name": "found", **changes}]}


TAKEN = {
    "an S3 store with many replicas": {"api": {"replicas": 5}},
    "a folder of one node with one replica of each part": {"store": FOLDER, **ONE},
    "a folder of many nodes with many replicas": {"store": {**FOLDER, "accessMode": "ReadWriteMany"}},
    "the values of a Secret": {"secrets": {"existing": "", "values": KEYS}},
    "database roles with a URL for the queues, all through a pooler": {
        "secrets": {
            "existing": "",
            "values": {
                **KEYS,
                **ROLES,
                "broker-url": "pgmq://sw_broker@x/slackwater",
                "database-direct-url": "postgresql://x",
                "database-direct-url-steward": "postgresql://x",
                "database-direct-url-notifier": "postgresql://x",
            },
        },
        "database": {"roles": True},
    },
    "encryption with a key provider": {
        "settings": {"ENCRYPT": "on", "KEY_PROVIDER": "vault+https://vault:8200/transit"}
    },
    "encryption with a folder of keys": {
        "settings": {"ENCRYPT": "policy"},
        "keys": {"claim": "keys", "accessMode": "ReadWriteMany"},
    },
    "zero in a pool of batches only": pool(model="m", batchOnly=True, scaling={**SCALING, "min": 0}),
    "one engine at least where others call it": pool(model="m", scaling=SCALING),
    "a group": pool(kind="LeaderWorkerSet", group={"size": 2, "command": ["ray"]}),
    "named engines": attached(engines=[{"name": "a", "url": URL}]),
    "found engines": attached(find={"selector": {"app": "vllm"}, "ports": [8000]}),
    "a port for operators": {"api": {"adminPort": 8702}},
    "a console by https": {"console": {"enabled": True, "url": "https://console.example.com"}},
    "a further setting": {"settings": {"RETENTION_DAYS": 7, "PROTECT": "strict", "ENCRYPT": "off"}},
    "callers of the API and who scrapes it": {
        "networkPolicy": {"apiFrom": [CALLER], "metricsFrom": [{"podSelector": {}}]}
    },
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no secrets": ({"secrets": {"existing": ""}}, "secrets"),
    "a Secret and values": ({"secrets": {"values": KEYS}}, "secrets"),
    "values without the secret key": ({"secrets": {"existing": "", "values": {"database-url": "x"}}}, "secret"),
    "a short secret key": ({"secrets": {"existing": "", "values": {**KEYS, "secret-key": "short"}}}, "secret-key"),
    "database roles without their URLs": (
        {"secrets": {"existing": "", "values": KEYS}, "database": {"roles": True}},
        "database-url-api",
    ),
    "database roles without a URL for the queues": (
        {"secrets": {"existing": "", "values": {**KEYS, **ROLES}}, "database": {"roles": True}},
        "broker-url",
    ),
    "a metrics token that no secret has": (
        {"secrets": {"existing": "", "values": KEYS}, "metrics": {"token": True}},
        "metrics-token",
    ),
    "no store": ({"store": {"url": ""}}, "store/url"),
    "a folder without a claim": ({"store": {"url": "file:///objects"}, **ONE}, "store/claim"),
    "a folder elsewhere than it is mounted": ({"store": {**FOLDER, "url": "file:///data"}, **ONE}, "store/url"),
    "a folder of one node, two API processes": ({"store": FOLDER, **ONE, "api": {"replicas": 2}}, "api/replicas"),
    "a folder of one node, an API that scales": (
        {"store": FOLDER, **ONE, "api": {"replicas": 1, "autoscaling": {"enabled": True}}},
        "autoscaling",
    ),
    "a folder of one node, two engines": ({"store": FOLDER, **ONE, **pool(replicas=2)}, "engines/0/replicas"),
    "encryption whose keys would go with the pod": ({"settings": {"ENCRYPT": "on"}}, "keys/claim"),
    "encryption by policy whose keys would go with the pod": (
        {"settings": {"ENCRYPT": "policy", "KEY_PROVIDER": ""}},
        "keys/claim",
    ),
    "a folder of keys that no volume has": ({"settings": {"KEY_PROVIDER": "file:///data/keys"}}, "keys/claim"),
    "a folder of keys elsewhere than it is mounted": (
        {"settings": {"KEY_PROVIDER": "file:///keys"}, "keys": {"claim": "keys", "accessMode": "ReadWriteMany"}},
        "settings/KEY_PROVIDER",
    ),
    "a folder of keys of one node, two API processes": (
        {"settings": {"ENCRYPT": "on"}, "keys": {"claim": "keys"}, **ONE, "api": {"replicas": 2}},
        "api/replicas",
    ),
    "encryption that YAML reads as true": ({"settings": {"ENCRYPT": True}}, "settings/ENCRYPT"),
    "encryption of one pool": (pool(worker={"settings": {"ENCRYPT": "on"}}), "engines/0/worker/settings"),
    "zero where others call the engines": (pool(model="m", scaling={**SCALING, "min": 0}), "batchOnly"),
    "zero of found engines that others call": (
        attached(
            model="m",
            engines=[{"name": "a", "url": URL}],
            scaling={**SCALING, "min": 0, "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        ),
        "batchOnly",
    ),
    "a scale without the model's name": (pool(scaling=SCALING), "model"),
    "a scale of found engines without its target": (
        attached(model="m", engines=[{"name": "a", "url": URL}], scaling=SCALING),
        "target",
    ),
    "more engines at least than at most": (pool(model="m", scaling={**SCALING, "min": 5}), "scaling.min is 5"),
    "more API processes at least than at most": (
        {"api": {"autoscaling": {"enabled": True, "min": 9}}},
        "autoscaling.min is 9",
    ),
    "a group of another kind": (pool(group={"size": 2, "command": ["ray"]}), "engines/0"),
    "a LeaderWorkerSet without a group": (pool(kind="LeaderWorkerSet"), "group"),
    "flags of a managed engine": (pool(managed=True, model="m"), "engines/0"),
    "engines neither named nor found": (attached(), "attach/0"),
    "engines both named and found": (
        attached(engines=[{"name": "a", "url": URL}], find={"selector": {"a": "b"}, "ports": [1]}),
        "attach/0",
    ),
    "a selector of every pod": (attached(find={"selector": {}, "ports": [8000]}), "selector"),
    "more ports than an InferencePool has": (
        attached(find={"selector": {"a": "b"}, "ports": list(range(8000, 8009))}),
        "ports",
    ),
    "a console without its address": ({"console": {"enabled": True}}, "console/url"),
    "a console whose sessions travel in the clear": (
        {"console": {"enabled": True, "url": "http://console.example.com"}},
        "console/url",
    ),
    "callers of the API while everybody may scrape it": (
        {"networkPolicy": {"apiFrom": [CALLER]}},
        "networkPolicy/metricsFrom",
    ),
    "a port for operators that is the API's": ({"api": {"adminPort": 8700}}, "api/adminPort"),
    "a port for operators that only root may take": ({"api": {"adminPort": 443}}, "api/adminPort"),
    "a value that nobody reads": ({"replicas": 3}, "replicas"),
}


@pytest.mark.parametrize("values", TAKEN.values(), ids=TAKEN)
def test_taken(values: dict[str, Any]) -> None:
    assert refusal(merged(values)) == ""


@pytest.mark.parametrize(("values", "place"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_place(values: dict[str, Any], place: str) -> None:
    message = refusal(merged(values))
    assert place in message.replace(".", "/") or place in message, message or "it was taken"


def test_no_secret_and_nothing_that_the_chart_sets_is_taken_among_settings() -> None:
    secrets = {name.upper() for name, field in Settings.model_fields.items() if field.annotation is SecretStr}
    full = {
        "models": "x = 1",
        "store": {"endpoint": "https://s3.example.com"},
        "metrics": {"token": True},
        "api": {"adminPort": 8702},
        "console": {"enabled": True, "url": "https://console.example.com"},
        "engines": [ENGINE, {"name": "own", "image": "slackwater-engine", "managed": True, "model": "m"}],
        "attach": [{"name": "found", "find": {"selector": {"app": "vllm"}, "ports": [8000]}}],
    }
    given = {name for _, container in ours(render(merged(full))) for name in variables(container)}
    chart = {name.removeprefix(PREFIX) for name in given if name.startswith(PREFIX)}
    places: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
        lambda settings: {"settings": settings},
        lambda settings: pool(worker={"settings": settings}),
        lambda settings: attached(engines=[{"name": "a", "url": URL}], settings=settings),
    ]
    for values in places:
        assert refusal(merged(values({"RETENTION_DAYS": 7}))) == ""
        for name in secrets | chart:
            assert f"propertyName '{name}'" in refusal(merged(values({name: "x"})))
