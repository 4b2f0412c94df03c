"""Calls of forbidden tools are removed from whole answers; a refusal that names the rule and its contact takes their place."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from app.policy import tool_calls
from app.policy.denials import Denial
from app.policy.tool_calls import CallJudge, withheld_body
from app.policy.tool_terms import ToolList, ToolTerms

DENY = ToolTerms(denied=ToolList("no-shell", "ops@example.com", frozenset({"shell"})))
ALLOW = ToolTerms(allowed=ToolList("lookup-only", None, frozenset({"lookup"})))
REFUSAL = (
    "Policy rule no-shell does not allow the tool shell; the model's call of it was withheld. Ask ops@example.com."
)


def call(name: str, arguments: str = '{"planted": 1}') -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(*calls: Mapping[str, Any], reason: str = "tool_calls", **message: Any) -> dict[str, Any]:
    own = {"role": "assistant", "content": None, "refusal": None, "tool_calls": list(calls)} | message
    return {"id": "c", "choices": [{"index": 0, "message": own, "logprobs": {"content": [1]}, "finish_reason": reason}]}


def judged(answer: dict[str, Any], *terms: ToolTerms, offered: frozenset[str] = frozenset()) -> Any:
    noted: list[Denial] = []
    found = orjson.loads(withheld_body(orjson.dumps(answer), CallJudge(terms, noted.append, offered)))
    return found, [(denial.rule_id, denial.message) for denial in noted]


def test_a_call_that_is_alone_ends_as_filtered_and_its_refusal_names_the_rule_and_the_contact() -> None:
    found, noted = judged(chat(call("shell")), DENY)
    [choice] = found["choices"]
    assert (choice["finish_reason"], choice["logprobs"]) == ("content_filter", None)
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": REFUSAL, "tool_calls": []}
    assert noted == [("no-shell", REFUSAL)]
    assert "planted" not in str(found)


def test_calls_that_are_left_keep_their_finish_reason() -> None:
    found, _ = judged(chat(call("lookup"), call("shell"), content="so"), DENY)
    [choice] = found["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [call("lookup")]
    assert (choice["message"]["content"], choice["message"]["refusal"]) == ("so", REFUSAL)


def test_an_answer_that_was_cut_says_so_whatever_was_withheld_of_it() -> None:
    found, _ = judged(chat(call("shell"), reason="length"), DENY)
    assert found["choices"][0]["finish_reason"] == "length"


def test_the_old_form_and_calls_of_custom_tools_are_judged_too() -> None:
    found, _ = judged(chat(function_call={"name": "shell", "arguments": "{}"}), DENY)
    assert "function_call" not in found["choices"][0]["message"]
    found, _ = judged(chat({"id": "c", "type": "custom", "custom": {"name": "shell", "input": "planted"}}), DENY)
    assert "planted" not in str(found)


@pytest.mark.parametrize("name", ["", " other", "two\nlines", "x" * 65, "sk-secret of somebody"])
def test_a_name_that_no_tool_can_have_is_withheld_by_an_allow_list_and_not_repeated(name: str) -> None:
    found, noted = judged(chat(call(name)), ALLOW)
    assert found["choices"][0]["message"]["tool_calls"] == []
    if name.strip() != "other":
        assert noted[0][1].startswith("Policy rule lookup-only does not allow a tool whose name is none;")


def test_space_around_a_name_does_not_hide_it() -> None:
    assert judged(chat(call("shell ")), DENY)[0]["choices"][0]["message"]["tool_calls"] == []
    assert judged(chat(call("lookup ")), ALLOW)[1] == []


def test_an_answer_without_forbidden_calls_stays_the_same_bytes() -> None:
    for answer in (chat(), chat(call("lookup")), {"output": [{"type": "function_call", "name": "lookup"}]}):
        body = orjson.dumps(answer, option=orjson.OPT_INDENT_2)
        assert withheld_body(body, CallJudge([DENY, ALLOW], pytest.fail)) is body


def test_an_answer_without_calls_is_not_even_parsed() -> None:
    assert withheld_body(b"{not json", CallJudge([DENY], pytest.fail)) == b"{not json"


def test_an_item_of_a_response_becomes_a_message_with_the_refusal_in_its_place() -> None:
    calls = [
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "shell", "arguments": "planted"},
        {"type": "custom_tool_call", "id": "fc_2", "name": "shell", "input": "planted"},
        {"type": "function_call", "id": "fc_3", "name": "lookup", "arguments": "{}"},
    ]
    given = {"object": "response", "status": "completed", "output": calls, "output_messages": ["planted"]}
    found, noted = judged(given, DENY)
    refusal = {"type": "message", "role": "assistant", "status": "completed"}
    refusal |= {"content": [{"type": "refusal", "refusal": REFUSAL}]}
    assert found["output"] == [refusal | {"id": "fc_1"}, refusal | {"id": "fc_2"}, calls[2]]
    assert "planted" not in str(found)
    assert len(noted) == 2


def test_a_call_that_the_api_runs_itself_is_judged_by_its_kind() -> None:
    found, _ = judged({"output": [{"type": "web_search_call", "id": "ws"}]}, ALLOW)
    assert found["output"][0]["content"][0]["type"] == "refusal"


def test_terms_are_the_same_after_a_batch_kept_them() -> None:
    both = ToolTerms(ALLOW.allowed, DENY.denied)
    for terms in (DENY, ALLOW, both, ToolTerms()):
        assert ToolTerms.of_json(orjson.loads(orjson.dumps(terms.as_json()))) == terms


def test_of_several_terms_each_withholds_but_not_what_the_own_request_offered() -> None:
    answer = chat(call("shell"), call("lookup"), call("other"))
    found, _ = judged(answer, DENY, ALLOW, offered=frozenset({"shell"}))
    assert [each["function"]["name"] for each in found["choices"][0]["message"]["tool_calls"]] == ["shell", "lookup"]


def test_tools_of_a_request_are_functions_by_name_and_others_by_type() -> None:
    tools = [{"type": "function", "function": {"name": "a"}}, {"type": "function", "name": "b"}, {"type": "hosted"}, 1]
    assert tool_calls.offered({"tools": tools, "functions": [{"name": "c"}]}) == {"a", "b", "c", "hosted"}
    assert tool_calls.offered({"tools": "none", "functions": None}) == frozenset()
