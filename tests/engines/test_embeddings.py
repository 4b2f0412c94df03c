"""Workers AI's embedding forms as an engine's request, and the engine's answer in their shapes."""

from typing import Any

import orjson
import pytest

from app.engines.embeddings import as_result, cosine, engine_body
from app.engines.requests import EMBEDDINGS, Target, build, probe_request

CONTEXTS = [{"text": "a"}, {"text": "b"}]


def answer(*vectors: list[float], order: list[int] | None = None) -> bytes:
    entries = [{"index": i, "object": "embedding", "embedding": vector} for i, vector in enumerate(vectors)]
    return orjson.dumps({"data": [entries[i] for i in order or range(len(entries))], "usage": {"prompt_tokens": 3}})


@pytest.mark.parametrize(
    ("item", "given"),
    [
        ({"text": "a"}, "a"),
        ({"text": ["a", "b"], "contexts": None}, ["a", "b"]),
        ({"contexts": CONTEXTS, "text": None}, ["a", "b"]),
        ({"query": "q", "contexts": CONTEXTS}, ["q", "a", "b"]),
    ],
)
def test_every_form_becomes_openais_input_and_floats(item: dict[str, Any], given: object) -> None:
    asked = {**item, "encoding_format": "base64", "user": "u", "pooling": "mean", "truncate_inputs": False}
    assert engine_body(asked) == {"input": given, "encoding_format": "float", "user": "u"}


def test_truncation_is_asked_of_the_engine_in_its_own_words() -> None:
    assert engine_body({"text": "a", "truncate_inputs": True})["truncate_prompt_tokens"] == -1


def test_openais_form_stays_as_it_is() -> None:
    body = {"input": [1, 2], "encoding_format": "base64", "dimensions": 4}
    assert engine_body(body) == body


def test_the_request_generates_nothing_and_has_the_salt_and_the_class() -> None:
    request = build({"text": "a", "options": {}}, EMBEDDINGS, Target("m", 8, 100), "salt", synchronous=True)
    expected = {"input": "a", "encoding_format": "float", "model": "m", "priority": 0, "cache_salt": "salt"}
    assert (request.route, orjson.loads(request.body)) == (EMBEDDINGS, expected)


def test_a_pooling_engine_is_probed_with_what_it_can_answer() -> None:
    request = probe_request(Target("m", 8, 100, pooling=True))
    assert request.route == EMBEDDINGS
    assert orjson.loads(request.body)["input"]


def test_vectors_come_in_the_order_of_their_texts_whatever_the_engines_is() -> None:
    result = orjson.loads(as_result(answer([1, 0], [0, 1], order=[1, 0]), {"text": ["a", "b"]}, "cls"))
    expected = {"shape": [2, 2], "data": [[1, 0], [0, 1]], "pooling": "cls", "usage": {"prompt_tokens": 3}}
    assert result == expected


def test_scores_are_cosines_with_the_query_numbered_by_context() -> None:
    item = {"query": "q", "contexts": CONTEXTS}
    result = orjson.loads(as_result(answer([3, 4], [6, 8], [-4, 3]), item, "mean"))
    assert result["response"] == [{"id": 0, "score": pytest.approx(1)}, {"id": 1, "score": pytest.approx(0)}]


def test_a_vector_without_direction_is_like_nothing() -> None:
    assert cosine([0, 0], [1, 2]) == 0
