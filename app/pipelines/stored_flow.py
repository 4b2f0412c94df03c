"""The definition of a pipeline as it is stored. Pure.

What a caller sent to create a pipeline is stored as it is; the stages behind a batch (`then`) with the endpoint of that batch.
Where the input is sealed, so is the definition, with the input's key, as if it were an item before the first.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from app.flows import conditions
from app.flows.definition import parse, parse_then
from app.flows.stages import Definition, Input, Request, Stage
from app.queue.bodies import BatchSeal, StoredBodies

_THEN, _ENDPOINT = "then", "endpoint"
_PLACE = -1


def of_then(stages: Any, endpoint: str) -> bytes:
    """The stored form of the stages that follow a batch of this endpoint."""
    return orjson.dumps({_THEN: stages, _ENDPOINT: endpoint})


def of_definition(given: Any) -> bytes:
    """The stored form of a definition."""
    return orjson.dumps(given)


def read(stored: bytes) -> Definition:
    """The pipeline of a stored definition."""
    given = orjson.loads(stored)
    return parse_then(given[_THEN], given[_ENDPOINT]) if _THEN in given else parse(given)


def emptied(stages: Iterable[tuple[int, str, int, str, str]]) -> Definition:
    """What is known of a definition that was deleted. `stages`: number, name and parent of each, its endpoint and its model."""
    always = conditions.parse("true")
    found = (
        Stage(number, name, parent, always, "drop", Request(endpoint, model, {}))
        for number, name, parent, endpoint, model in stages
    )
    return Definition(Input(items=True), tuple(found))


def sealed(seal: BatchSeal, stored: bytes) -> bytes:
    """The stored form, sealed with the key of the input."""
    return seal.payload(_PLACE, stored)


async def opened(bodies: StoredBodies, stored: bytes) -> bytes:
    """What is stored, in the clear. `bodies`: of the input. Raises KeysUnavailable."""
    return await bodies.payload(_PLACE, stored)
