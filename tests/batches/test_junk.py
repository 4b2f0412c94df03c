"""Any value of a field is accepted, or refused with the field's name. It never causes a server error."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.batches.validation.fields import FIELDS
from app.batches.validation.openai_lines import ROUTES
from app.batches.validation.text_generation import ItemError, ItemRules

RULES = ItemRules(context_window=4096, default_max_tokens=16, names=frozenset({"m"}))
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/completions": {"prompt": "x"},
    "/v1/embeddings": {"input": "x"},
    "/v1/responses": {"input": "x"},
}
NAMES = sorted({*FIELDS, "model", "messages", "prompt", "input", "instructions", "reasoning", "text", "query"})
WORDS = st.sampled_from(["type", "role", "content", "text", "image_url", "url", "effort", "format", "schema", "user"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("route", VALID)
@given(name=st.sampled_from(NAMES), value=JSON)
@example(name="model", value=["m"])
@example(name="messages", value=[None])
def test_a_field_is_taken_or_refused_by_its_name(route: str, name: str, value: object) -> None:
    with suppress(ItemError):
        ROUTES[route][1]({**VALID[route], name: value}, RULES)
