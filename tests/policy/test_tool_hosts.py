"""Claims about `allow = { tool_hosts = … }`: no call leaves whose arguments name another host, however it is spelled."""

import json
from typing import Any

import pytest

from app.engines import catalogue
from app.policy.denials import Denial
from app.policy.destinations import named_in
from app.policy.language import parse
from app.policy.match import Asked, decide
from app.policy.problems import PolicyError
from app.policy.tool_call_events import EventWithholder
from app.policy.tool_calls import CallJudge, withheld
from app.policy.tool_terms import ToolList, ToolTerms
from app.settings import DEMO_MODELS
from tests.policy.test_tool_call_events import chunk, joined, of_call

HOSTS = ToolTerms(hosts=ToolList("only-ours", "ops@example.com", frozenset({".example.com", "127.0.0.1"})))
RULE = '[[rule]]\nid = "only-ours"\nallow = { tool_hosts = [".example.com"] }\n'
OURS = [
    "a.example.com",
    "https://a.example.com/x?y=1",
    "bob@mail.example.com",
    "A.EXAMPLE.COM.",
    "127.1",
    "http://0x7f.1/",
    "ping 0x7f000001",
    "0x7f.1",
    "0177.1",
    "0177.0.0.1",
]
NUMBERS = ["0x7f", "0xa00000000", "01.02.2024", "01701234567", "order 2130706433", "007"]
NONE = ["nothing here", "12:30:45, 3.14, e.g. v1.2", "report.pdf and data.csv", "[EMAIL_1]", "", "a/b/c", "x = y"]
OTHERS = [
    "https://evil.test/x",
    "HTTP://EVIL.TEST:8080",
    "//evil.test/x",
    "evil.test",
    "evil.test.",
    "https://a.example.com@evil.test/",
    "https://a.example.com:x@evil.test/",
    "https://evil.test/?a.example.com",
    "https://evil.test#a.example.com",
    "https://evil.test\\@a.example.com",
    "https:\\\\evil.test\\x",
    "a.example.com.evil.test",
    "aexample.com",
    "example.com.",
    "bob@evil.test",
    "Bob <bob@evil.test>",
    "mailto:bob@evil.test",
    "bob%40evil%2etest",
    "https://evil%252etest/",
    "ｅｖｉｌ.test",
    "evil\u3002test",
    "evil\uff0etest",
    "ev\u00adil.test",
    "ev\u200bil.test",
    "bücher.test",
    "xn--bcher-kva.test",
    "localhost",
    "root@localhost",
    "http://localhost:9/",
    "10.0.0.1",
    "0x0a.0.0.1",
    "012.0.0.1",
    "http://167772161/",
    "http://0xa000001/",
    "http://10.1/",
    "0xa000001",
    "0x000A000001",
    "0xa.1",
    "012.1",
    "012.0.1",
    "https:\\u002f\\u002fevil.test",
    "\\u0065vil\\x2etest",
    "http://[::1]/",
    "::1",
    "http://[fe80::1%25eth0]/",
    "::ffff:10.0.0.1",
    "bob@[10.0.0.1]",
    "ftp://evil.test",
    "jdbc:postgresql://evil.test/db",
]


def judge(noted: list[Denial]) -> CallJudge:
    return CallJudge([HOSTS], noted.append)


def calls(*arguments: Any) -> dict[str, Any]:
    found = [{"id": f"call_{n}", "function": {"name": "get", "arguments": each}} for n, each in enumerate(arguments)]
    return {"choices": [{"message": {"tool_calls": found}, "finish_reason": "tool_calls"}]}


def output(arguments: Any) -> dict[str, Any]:
    call = {"type": "function_call", "id": "f", "name": "get", "arguments": arguments, "status": "completed"}
    return {"object": "response", "output": [call]}


@pytest.mark.parametrize("text", OTHERS)
def test_a_call_that_names_another_host_is_withheld_in_every_form(text: str) -> None:
    given = [json.dumps({"q": text}), json.dumps({"q": [{"deep": f"see {text} now"}]}), json.dumps({text: 1}), text]
    for arguments in given:
        for answer in (calls(arguments), output(arguments)):
            noted: list[Denial] = []
            found = withheld(answer, judge(noted))
            assert "evil" not in str(found), arguments
            assert "arguments" not in str(found), arguments
            assert [each.rule_id for each in noted] == ["only-ours"], arguments
            assert "ops@example.com" in str(found)


@pytest.mark.parametrize("text", OURS + NONE + NUMBERS)
def test_a_call_that_names_none_but_listed_hosts_passes(text: str) -> None:
    for arguments in (json.dumps({"q": text}), json.dumps({"q": [{"deep": text}]}), text):
        for answer in (calls(arguments), output(arguments)):
            assert withheld(answer, judge([])) is answer, arguments


@pytest.mark.parametrize("pair", [("evil.test", "a.example.com"), ("a.example.com", "evil.test")])
def test_of_a_repeated_key_every_value_is_judged(pair: tuple[str, str]) -> None:
    for url in ('{"url": "https://%s/", "url": "https://%s/"}', '{"q": [{"url": "https://%s/", "url": {"x": "%s"}}]}'):
        assert set(named_in(url % pair)) == {"evil.test", "a.example.com"}
    assert list(named_in('{"host": "intranet", "host": 1}')) == ["0.0.0.1", "intranet"]


@pytest.mark.parametrize(("host", "passes"), [("a.example.com", True), ("evil.test", False)])
def test_arguments_that_are_a_value_and_no_text_are_judged(host: str, passes: bool) -> None:
    value = {"q": [{"host": host, "port": 1}]}
    item = {"type": "custom_tool_call", "id": "f", "name": "get", "input": value}
    chat = [
        {"function": {"name": "get", "parameters": value}},
        {"type": "custom", "custom": {"name": "get", "input": value}},
    ]
    answers = [
        calls(value),
        output(value),
        {"object": "response", "output": [item]},
        {"choices": [{"message": {"tool_calls": [], "function_call": {"name": "get", "arguments": value}}}]},
        *({"choices": [{"message": {"tool_calls": [call]}}]} for call in chat),
    ]
    for answer in answers:
        assert (withheld(answer, judge([])) is answer) is passes, answer
    assert "evil" not in str([withheld(answer, judge([])) for answer in answers])


@pytest.mark.parametrize("last", [{"url": "evil.test"}, '{"url": "evil.test"}'])
def test_in_a_stream_a_value_is_judged_as_it_is_sent(last: Any) -> None:
    parts = [{"name": "get", "arguments": {"url": "a.example.com"}}, {"arguments": last}]
    bodies = [chunk({"tool_calls": [{"index": 0, "id": "c", "function": each}]}) for each in parts]
    noted: list[Denial] = []
    withholder = EventWithholder(judge(noted))
    sent = [event for body in [*bodies, chunk({}, "tool_calls")] for event in withholder.feed(body)]
    assert ("evil" in str(sent), len(noted)) == (False, 1)


@pytest.mark.parametrize(
    ("number", "host"),
    [
        ("2130706433", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("4294967296", "4294967296"),
        ("2.1e9", "2.1e9"),
        ("1" * 5000, "1" * 5000),
    ],
)
def test_a_number_in_a_field_for_a_host_is_an_address(number: str, host: str) -> None:
    assert list(named_in(f'{{"ip": [{number}], "n": {number}, "on": true, "server": null}}')) == [host]
    if number != "1" * 5000:
        assert list(named_in({"ip": json.loads(number), "n": 1})) in ([host], ["2100000000.0"])


@pytest.mark.parametrize(
    "arguments",
    [
        '{"host": "intranet",}',
        "\ufeff {'host': 'intranet'}",
        '{"host": "intra',
        "{",
        '{"a": ' * 9999,
        '{"host": "intranet"}}',
    ],
)
def test_what_begins_as_json_and_is_none_is_withheld(arguments: str) -> None:
    for answer in (calls(arguments), output(arguments)):
        noted: list[Denial] = []
        assert "no valid JSON" in str(withheld(answer, judge(noted)))
        assert [each.rule_id for each in noted] == ["only-ours"]


def test_deep_arguments_are_judged() -> None:
    deep = '{"a": [' * 400 + '"evil.test"' + "]}" * 400
    assert list(named_in(deep)) == list(named_in(json.loads(deep))) == ["evil.test"]


def test_a_field_for_a_host_has_one_without_a_dot() -> None:
    assert list(named_in('{"host": "Intranet", "note": "intranet"}')) == ["intranet"]
    assert list(named_in('{"host": "intranet:8080", "note": "intranet:8080"}')) == ["intranet"]


def test_in_a_stream_a_call_is_judged_when_it_is_whole() -> None:
    good, bad = '{"q": "a.example.com"}', '{"q": "a.example.com.evil.test"}'
    bodies = [*of_call(0, ["ge", "t"], list(bad)), *of_call(1, ["get"], list(good)), chunk({}, "tool_calls")]
    noted: list[Denial] = []
    withholder = EventWithholder(judge(noted))
    found = joined([event for body in bodies for event in withholder.feed(body)])
    assert [(call["id"], call["arguments"]) for call in found["tool_calls"]] == [("call_1", good)]
    assert ("evil" in str(found), len(noted), found["end"]) == (False, 1, "tool_calls")


@pytest.mark.parametrize(("host", "passes"), [("a.example.com", True), ("evil.test", False)])
def test_in_the_stream_of_a_response_a_call_is_judged_when_it_is_whole(host: str, passes: bool) -> None:
    arguments = json.dumps({"q": host})
    begun = {"type": "function_call", "id": "f", "name": "get", "arguments": "", "status": "in_progress"}
    whole = begun | {"arguments": arguments, "status": "completed"}
    bodies: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *(
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": part}
            for part in (arguments[:9], arguments[9:])
        ),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": output(arguments)},
    ]
    withholder = EventWithholder(judge([]))
    sent = [withholder.feed(body) for body in bodies]
    assert [len(each) for each in sent[:5]] == [1, 0, 0, 0, 0]
    events = [event for each in sent for event in each]
    if passes:
        assert events == bodies
        return
    assert "evil.test" not in str(events)
    assert [event["type"].rpartition(".")[2] for event in events] == ["created", "added", "done", "completed"]


def test_a_policy_has_such_a_list_and_a_batch_keeps_it() -> None:
    models = catalogue.load(DEMO_MODELS)
    terms = decide(parse(RULE, models), Asked("m", "/v1/chat/completions", 1), float).tools
    assert ToolTerms.of_json(json.loads(json.dumps(terms.as_json()))) == terms
    assert (terms.of_request({"anything"}), terms.of_arguments("get", "a.example.com")) == (None, None)
    assert terms.of_arguments("get", "evil.test") is not None
    with pytest.raises(PolicyError, match="no host name"):
        parse(RULE.replace(".example.com", "https://x"), models)
    with pytest.raises(PolicyError, match="tool_hosts"):
        parse(RULE.replace("allow", "deny"), models)
