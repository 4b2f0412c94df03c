"""The form of one item's result."""

import orjson

from app.api.workers_ai.results import _response
from app.queue.reads import ItemResult

BODY = orjson.dumps({"choices": [{"message": {"content": "hi"}}]})


def told(yields: int) -> dict[str, object]:
    item = ItemResult(3, "mine", False, True, BODY, 2, 0, 1, yields)
    told: dict[str, object] = orjson.loads(_response(item, None, b""))
    return told


def test_an_item_that_yielded_has_a_count_and_others_have_none() -> None:
    assert told(2)["yields"] == 2
    assert "yields" not in told(0)
