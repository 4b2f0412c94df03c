"""Claims about what the chart refuses, before anything reaches the cluster."""

from copy import deepcopy
from typing import Any

import pytest

from tests.kubernetes.chart import ENGINE, MINIMAL, refusal

FOLDER = {"url": "file:///objects", "claim": "objects"}
ONE = {"api": {"replicas": 1}, "steward": {"replicas": 1}, "notifier": {"replicas": 1}}
SCALING = {"enabled": True, "min": 1, "max": 4}
KEYS = {"database-url": "postgresql://x", "secret-key": "k" * 32}
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
    "zero in a pool of batches only": pool(model="m", batchOnly=True, scaling={**SCALING, "min": 0}),
    "one engine at least where others call it": pool(model="m", scaling=SCALING),
    "a group": pool(kind="LeaderWorkerSet", group={"size": 2, "command": ["ray"]}),
    "named engines": attached(engines=[{"name": "a", "url": URL}]),
    "found engines": attached(find={"selector": {"app": "vllm"}, "ports": [8000]}),
    "a console by https": {"console": {"enabled": True, "url": "https://console.example.com"}},
    "a further setting": {"settings": {"RETENTION_DAYS": 7, "PROTECT": "strict"}},
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
    "a value that nobody reads": ({"replicas": 3}, "replicas"),
}


@pytest.mark.parametrize("values", TAKEN.values(), ids=TAKEN)
def test_taken(values: dict[str, Any]) -> None:
    assert refusal(merged(values)) == ""


@pytest.mark.parametrize(("values", "place"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_place(values: dict[str, Any], place: str) -> None:
    message = refusal(merged(values))
    assert place in message.replace(".", "/") or place in message, message or "it was taken"
