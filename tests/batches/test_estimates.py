"""Claims about the estimate of a prompt: whatever an engine writes into it counts, wherever the request has it."""

from typing import Any

import pytest

from app.batches.validation.openai import response
from app.batches.validation.text_generation import ItemFacts, ItemRules, examine

RULES = ItemRules(100_000, default_max_tokens=16, usual_tokens=16)
LONG = "long words " * 4_000
TOKENS = len(LONG) // 4
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "description": LONG}}}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": LONG}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


def prompt(found: ItemFacts) -> int:
    return found.est_tokens - found.answer_tokens


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"functions": [TOOL["function"]]},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"documents": [{"title": "t", "text": LONG}]},
    ],
)
def test_tools_and_schemas_count(more: dict[str, Any]) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert prompt(examine(chat | more, RULES)) >= TOKENS > prompt(examine(chat, RULES))


@pytest.mark.parametrize(
    "more",
    [
        {"tool_calls": [CALL]},
        {"tool_calls": [{"name": "look", "arguments": {"q": LONG}}]},
        {"function_call": CALL["function"]},
        {"reasoning_content": LONG},
        {"name": LONG},
    ],
)
def test_what_a_message_has_besides_its_content_counts(more: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, **more}]
    assert prompt(examine({"messages": messages}, RULES)) >= TOKENS


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "name": "look", "parameters": SCHEMA}]},
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
        {"input": [{"type": "function_call", "call_id": "1", "name": "look", "arguments": LONG}]},
        {"input": [{"type": "custom_tool_call", "call_id": "1", "name": "look", "input": LONG}]},
        {"input": [{"type": "custom_tool_call_output", "call_id": "1", "output": LONG}]},
        {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": LONG}]}]},
        {"input": [{"type": "mcp_list_tools", "tools": [{"name": "look", "input_schema": SCHEMA}]}]},
        {"input": [{"type": "code_interpreter_call", "code": LONG}]},
    ],
)
def test_tools_schemas_and_calls_of_a_response_count(more: dict[str, Any]) -> None:
    assert prompt(response({"input": "x"} | more, RULES)) >= TOKENS


def test_tools_refuse_no_request_since_a_template_may_leave_them_out() -> None:
    small = ItemRules(2_000, default_max_tokens=16)
    assert prompt(examine({"prompt": "x", "tools": [TOOL]}, small)) >= TOKENS
