"""Items for an embedding model: what each form answers, and what is refused."""

from typing import Any

import pytest

from app.engines.embeddings import cosine
from testing.fakes.embeddings_and_responses import DIMENSIONS, vector

CONTEXTS = [{"text": "an orange cloud"}, {"text": "a llama"}]
TEXTS = {"text": ["one", "two"]}
SCORES = {"query": "a llama", "contexts": CONTEXTS}
# What each form answers, usage aside.
FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"text": "one"}, {"shape": [1, DIMENSIONS], "data": [vector("one")], "pooling": "mean"}),
    (TEXTS, {"shape": [2, DIMENSIONS], "data": [vector("one"), vector("two")], "pooling": "mean"}),
    (
        {"contexts": CONTEXTS},
        {"shape": [2, DIMENSIONS], "response": [vector(each["text"]) for each in CONTEXTS], "pooling": "mean"},
    ),
    (
        SCORES,
        {
            "response": [
                {"id": 0, "score": pytest.approx(cosine(vector("a llama"), vector("an orange cloud")))},
                {"id": 1, "score": pytest.approx(1.0)},
            ]
        },
    ),
]
REFUSED = [
    ({"prompt": "x"}, "prompt: this model makes embeddings"),
    ({"messages": [{"role": "user", "content": "x"}]}, "messages: this model makes embeddings"),
    ({"input": "x"}, "input: this model makes embeddings"),
    ({}, "needs text, or contexts"),
    ({"text": ""}, "text: must be a non-empty string"),
    ({"text": []}, "text: must be a list of 1 to"),
    ({"text": ["a", 5]}, "text[1]: must be a non-empty string, got 5"),
    ({"text": "a", "contexts": CONTEXTS}, "text: cannot be combined"),
    ({"query": "a"}, "contexts: is missing"),
    ({"contexts": "a"}, "contexts: must be a list"),
    ({"contexts": ["a"]}, "contexts[0]: must be an object with text"),
    ({"contexts": [{"text": "a"}, {}]}, "contexts[1].text: must be a non-empty string"),
    ({"query": 5, "contexts": CONTEXTS}, "query: must be a non-empty string"),
    ({"text": "a", "pooling": "cls"}, "pooling: this model pools by mean"),
    ({"text": "a", "truncate_inputs": "yes"}, "truncate_inputs: must be true or false"),
    ({"text": ["a", "b " * 1000]}, "text[1]: has at least 125 tokens, beyond the context window of 64"),
    ({"text": "a", "priority": 1}, "priority: is set by Slackwater"),
    ({"text": "a", "external_reference": 5}, "external_reference: must be a string"),
]
