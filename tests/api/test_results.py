"""How one item's result is told."""

import orjson

from app.api.workers_ai.results import _response
from app.queue.reads import ItemResult

BODY = orjson.dumps({"choices": [{"message": {"content": "hi"}}]})


def told(yields: int) -> dict[str, object]:
    item = ItemResult(3, "mine", False, True, BODY, 2, 0, 1, yields)
    told: dict[str, object] = orjson.loads(_response(item, None, b""))
    return told


def test_an_item_that_yielded_says_how_often_and_others_say_nothing() -> None:
    assert told(2)["yields"] == 2
    assert "yields" not in told(0)
