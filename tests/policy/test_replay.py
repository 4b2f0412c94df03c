"""Claims about trying a policy on recorded requests: it decides as the routes do."""

from dataclasses import replace

import pytest

from app.engines import catalogue
from app.engines.catalogue import Catalogue
from app.policy.language import parse
from app.policy.replay import replay
from app.policy.samples import Sample
from app.settings import DEMO_MODELS

BIG = catalogue.load(DEMO_MODELS).models["smollm2-135m-instruct"]
SYNC_ONLY = replace(BIG, name="sync-only", served="sync-only", capabilities=BIG.capabilities - {"async_queue"})
MODELS = Catalogue({"big": replace(BIG, name="big"), "sync-only": SYNC_ONLY}, {"big": BIG, "sync-only": SYNC_ONLY})
RULES = parse('[[rule]]\nid = "r"\nroute = "sync-only"\n', MODELS)


@pytest.mark.parametrize(("kind", "moved"), [("sync", 7), ("batch", 0), ("response", 0), ("flex", 0)])
def test_queued_requests_are_not_routed_to_a_model_that_cannot_be_queued(kind: str, moved: int) -> None:
    sample = Sample(1, "key", "w", "-", True, kind, "big", "/v1/chat/completions", None, 7, 100, 50)
    report = replay(RULES, [("acme", sample)], MODELS)
    assert (report.requests, sum(report.moved.values())) == (7, moved)
