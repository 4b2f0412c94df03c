"""The published schemas accept what the checks accept, and refuse the same ranges and kinds."""

from dataclasses import replace
from typing import Any

import jsonschema
import orjson
import pytest

from app.batches.submit import rules_of
from app.batches.validation import embeddings
from app.batches.validation.fields import FIELDS
from app.batches.validation.schemas import input_schema, output_schema
from app.batches.validation.text_generation import ItemError, examine
from app.engines.catalogue import Model
from app.engines.native_response import as_result
from tests.api.embedding_items import FORMS
from tests.api.embedding_items import REFUSED as REFUSED_EMBEDDINGS

CHAT = Model("m", "m", 128, "native", capabilities=frozenset({"vision"}))
EMBEDDER = Model("e", "e", 64, task="text-embeddings")
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 0.5, 5, 5.5, 17, 2**70, "", "x", "flex", [], ["x"], [""], ["x"] * 17, {}),
    *({"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "xml"}),
    *({"type": "json_schema", "json_schema": {}}, {"type": "text", "json_schema": 5}),
    *({"rejectIfBusy": True}, {"rejectIfBusy": "x"}),
    *("auto", "any", {"type": "function", "function": {"name": "f"}}, {"1": 1}, {"1": "x"}, {"x": 1}),
    *(
        [{"type": "function"}],
        [{"type": "function", "name": "f"}],
        [{"name": "f"}],
        [{}],
        [{"function": {"name": "f"}}],
    ),
    *([{"function": {"name": ""}}], [{"type": "custom"}], [{"type": 5}], [{"type": "web_search", "name": "f"}]),
]
SAY = {"role": "user", "content": "x"}
CHATS: list[dict[str, Any]] = [
    {"prompt": "x"},
    {"prompt": "x", "messages": None, "max_tokens": None, "new": 1},
    {"messages": [SAY, {"role": "assistant", "content": None, "tool_calls": []}], "max_tokens": 9},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
    {
        "messages": [{"role": "control", "content": "thinking"}, SAY]
    },  # known to the template of Granite, and to no list of ours
    {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}
        ]
    },
]
NOT_CHATS: list[dict[str, Any]] = [
    {},
    {"prompt": ""},
    {"prompt": 5},
    {"prompt": "x", "messages": [SAY]},
    {"messages": []},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "", "content": "x"}]},
    {"messages": [{"role": "x" * 65, "content": "x"}]},
    {"messages": [{"role": ["user"], "content": "x"}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"prompt": "x", "max_tokens": 0},
    {"prompt": "x", "max_tokens": 129},
    {"prompt": "x", "model": "other"},
    {"text": "x"},
]


def accepts(schema: dict[str, Any], item: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(item))


def passes(model: Model, item: Any) -> bool:
    check = examine if model.task == "text-generation" else embeddings.examine
    try:
        check(item, rules_of(model, stream=True))
    except ItemError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_fields_schema_and_its_check_agree(name: str) -> None:
    field = FIELDS[name]
    for value in VALUES:
        if value is not None:
            assert accepts(dict(field.schema), value) is (field.check(value) is None), value


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - {"n"}))
def test_whatever_passes_is_accepted_field_by_field(name: str) -> None:
    """`n` aside, which the rules of native models narrow."""
    schema = input_schema(CHAT)
    for value in VALUES:
        item = {"prompt": "x", name: value}
        assert accepts(schema, item) is passes(CHAT, item), value


@pytest.mark.parametrize("item", CHATS)
def test_chat_items_that_pass_are_accepted(item: dict[str, Any]) -> None:
    assert passes(CHAT, item)
    assert accepts(input_schema(CHAT), item)


@pytest.mark.parametrize("item", NOT_CHATS)
def test_chat_items_of_the_wrong_form_are_not(item: dict[str, Any]) -> None:
    assert not passes(CHAT, item)
    assert not accepts(input_schema(CHAT), item)


@pytest.mark.parametrize("item", [item for item, _ in FORMS])
def test_embedding_items_that_pass_are_accepted(item: dict[str, Any]) -> None:
    for each in (item, {**item, "truncate_inputs": True, "pooling": "mean", "new": 1, "session_id": None}):
        assert passes(EMBEDDER, each)
        assert accepts(input_schema(EMBEDDER), each)


@pytest.mark.parametrize(
    "item", [item for item, message in REFUSED_EMBEDDINGS if "beyond" not in message and "set by" not in message]
)
def test_embedding_items_of_the_wrong_form_are_not(item: dict[str, Any]) -> None:
    """Aside from what no schema can say: the context window, and the operator's fields."""
    assert not passes(EMBEDDER, item)
    assert not accepts(input_schema(EMBEDDER), item)


def test_answers_keep_the_output_schema_of_their_models_shape() -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    whole = {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "prompt_tokens_details": None},
    }
    other = output_schema(replace(CHAT, shape="openai"))
    native = orjson.loads(as_result(orjson.dumps(whole), "native"))
    assert accepts(output_schema(CHAT), native)
    assert accepts(other, whole)
    assert not accepts(other, native)
