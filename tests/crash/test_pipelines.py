"""Claims about the checker of pipelines: an item that is lost, was made twice, or comes of something else is found."""

import random

import orjson
import pytest

from app.flows.items import Asked
from app.pipelines import stored_flow
from tests.crash.history import History
from tests.crash.pipeline_verdict import Found, _compare
from tests.crash.pipelines import Pipeline, definition
from tests.flows import recomputation
from tests.flows.pipelines import completion
from tests.flows.recomputation import Stored

ANSWER = Stored(ok=True, body=orjson.dumps(completion("echo")))


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ("nothing", None),
        ("lose", "kill_lost"),
        ("add", "kill_doubled"),
        ("exchange", "kill_wrong_lineage"),
        ("unanswered", "kill_lost"),
    ],
)
def test_each_kind_of_violation_in_a_pipeline_is_counted(change: str, count: str | None) -> None:
    history, of = History(), Pipeline("p", definition("p", random.Random(4)), state="completed")
    flow = stored_flow.read(stored_flow.of_definition(of.definition | {"input": {"items": True}}))
    results = {(1, n): ANSWER for n in range(len(of.lines))}
    if change == "unanswered":
        del results[1, 1]
    level = recomputation.recompute(flow, of.lines, results)[1]
    found = {
        seq: Found(True, orjson.dumps(each.child.body))
        for seq, each in level.items.items()
        if isinstance(each.child, Asked)
    }
    match change:
        case "lose":
            del found[0]
        case "add":
            found[len(of.lines)] = found[0]
        case "exchange":
            found[0] = found[1]
    _compare(history, of, 1, level, found)
    assert {name for name, n in history.counts.items() if n} == ({count} if count else set())
