"""Claims about a yielded request: what it keeps, and how its pieces become one answer."""

import orjson
import pytest

from app.engines.continuation import Continuation, joined, resumable
from app.engines.outcome import Done, Usage
from app.engines.requests import CHAT, COMPLETIONS, EngineRequest, Target, build

TARGET = Target("m", 6, 100)


def chat(**options: object) -> EngineRequest:
    return build({"messages": [{"role": "user", "content": "hi"}], **options}, CHAT, TARGET, "salt")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"temperature": 1.2, "top_p": 0.9, "top_k": 5, "min_p": 0.1},
        {"ignore_eos": True},
        {"seed": None},
    ],
)
def test_plain_text_may_be_continued(options: dict[str, object]) -> None:
    assert resumable(chat(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 7},
        {"n": 2},
        {"logprobs": True},
        {"tools": []},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a"}},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"repetition_penalty": 1.1},
        {"min_tokens": 3},
        {"stop": ["\n"]},
        {"include_reasoning": True},
        {"something_new": 1},
    ],
)
def test_whatever_keeps_more_state_than_its_tokens_is_not_continued(options: dict[str, object]) -> None:
    assert not resumable(chat(**options))


def spoken(transcript: Continuation, *events: dict[str, object]) -> None:
    for event in events:
        transcript.feed(orjson.dumps(event))


def piece(text: str, ids: list[int], *, finish: str | None = None, completion: bool = False) -> dict[str, object]:
    said = {"text": text} if completion else {"delta": {"content": text}}
    return {
        "id": "x",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "token_ids": ids, "finish_reason": finish, **said}],
    }


def usage(prompt: int, cached: int, output: int) -> dict[str, object]:
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def test_a_continuation_sends_the_tokens_so_far_and_asks_for_the_rest_only() -> None:
    transcript = Continuation(chat(temperature=0.3, top_k=4), TARGET.context_window)
    first = transcript.call()
    body = orjson.loads(first.body)
    assert (first.route, body["stream"], body["return_token_ids"]) == (CHAT, True, True)
    spoken(
        transcript,
        {"choices": [{"index": 0, "delta": {"content": ""}}], "prompt_token_ids": [1, 2, 3]},
        piece("ab", [10, 11]),
    )
    second = transcript.call()
    body = orjson.loads(second.body)
    assert (second.route, body["prompt"], body["max_tokens"]) == (COMPLETIONS, [1, 2, 3, 10, 11], 4)
    assert (body["temperature"], body["top_k"], body["priority"], body["cache_salt"]) == (0.3, 4, 10, "salt")
    assert "messages" not in body


def test_usage_counts_the_prompt_once_and_every_output_token_once() -> None:
    transcript = Continuation(chat(), TARGET.context_window)
    transcript.call()
    spoken(transcript, {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2, 3]}, piece("ab", [10, 11]))
    transcript.call()
    spoken(
        transcript,
        piece("cd", [12, 13], completion=True),
        piece("", [2], finish="stop", completion=True),
        usage(5, 4, 3),
    )
    assert transcript.complete
    assert list(transcript.text_ids) == [10, 11, 12, 13]
    answer = orjson.loads(transcript.answer("abcd"))
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == "abcd"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 5
    assert (transcript.usage.cached_tokens, transcript.resumed_cached) == (0, 4)


def test_parts_of_the_usage_are_those_of_all_calls() -> None:
    transcript = Continuation(chat(), TARGET.context_window)
    for n, (ids, audio, thought) in enumerate((([10, 11], 3, 7), ([12, 13], 5, 2))):
        transcript.call()
        parts = {"prompt_tokens_details": {"audio_tokens": audio}}
        parts |= {"completion_tokens_details": {"reasoning_tokens": thought, "none": 0}}
        event = {**usage(3 + n, n, 2), "choices": []}
        event["usage"] |= parts  # type: ignore[operator]
        spoken(transcript, {**piece("ab", ids, completion=n > 0), "prompt_token_ids": [1, 2, 3]}, event, event)
    assert transcript.usage.details == {"input.audio_tokens": 3, "output.reasoning_tokens": 9}
    answer = orjson.loads(transcript.answer("abab"))["usage"]
    assert answer["prompt_tokens_details"] == {"cached_tokens": 0, "audio_tokens": 3}
    assert answer["completion_tokens_details"] == {"reasoning_tokens": 9}


def test_an_answer_cut_by_its_length_is_complete_without_another_call() -> None:
    transcript = Continuation(chat(max_tokens=2), TARGET.context_window)
    transcript.call()
    spoken(transcript, {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1]}, piece("ab", [10, 11]))
    assert transcript.complete
    assert orjson.loads(transcript.answer("ab"))["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("pieces", "whole", "text"),
    [
        (["ab", "cd"], "abcd", "abcd"),
        (["ab", "d"], "ab€d", "ab€d"),  # the cut went through a character that neither piece has
        (["ab", ""], "ab€", "ab€"),
        (["ab", "cd"], "ab<|im_end|>cd", "abcd"),  # the engine's text of all tokens shows what a stream leaves out
        (["ab", "cd", "ef"], "abcdef", "abcdef"),
        (["ab", "cd"], "", "abcd"),
        (["ab", "d"], "abd\N{REPLACEMENT CHARACTER}", "abd"),  # the last character was never finished
        (["ab", "prompt ab€d", "e"], "ab€de", "ab€de"),  # vLLM repeats a prompt that ends within a character
        (["", "prompt €d"], "€d", "€d"),
    ],
)
def test_the_pieces_text_is_joined_with_the_character_that_was_cut(pieces: list[str], whole: str, text: str) -> None:
    assert joined(pieces, whole) == text


def test_an_answer_without_a_limit_goes_on_for_what_is_left_of_the_window_and_ends_there() -> None:
    item = {"messages": [{"role": "user", "content": "hi"}]}
    transcript = Continuation(build(item, CHAT, TARGET, "salt", open_ended=True), 8)
    assert "max_tokens" not in orjson.loads(transcript.call().body)
    opening = {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2, 3]}
    spoken(transcript, opening, piece("ab", [10, 11]))
    assert not transcript.complete
    assert orjson.loads(transcript.call().body)["max_tokens"] == 3
    spoken(transcript, piece("cde", [12, 13, 14], completion=True))
    assert transcript.complete
    assert orjson.loads(transcript.answer("abcde"))["choices"][0]["finish_reason"] == "length"


def test_a_limit_beyond_the_window_ends_at_the_window() -> None:
    transcript = Continuation(chat(max_tokens=90), 4)
    transcript.call()
    spoken(transcript, {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2]}, piece("a", [10]))
    assert orjson.loads(transcript.call().body)["max_tokens"] == 1


def test_content_in_parts_of_text_is_text_and_other_parts_are_not_dropped_silently() -> None:
    transcript = Continuation(chat(), 100)
    transcript.call()
    transcript.feed(orjson.dumps({"choices": [{"delta": {"content": [{"type": "text", "text": "a"}]}}]}))
    assert transcript.pieces == ["a"]
    with pytest.raises(TypeError):
        transcript.feed(orjson.dumps({"choices": [{"delta": {"content": [{"type": "thinking", "thinking": []}]}}]}))


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("deltas", "messages"),
    [
        ([(0, {"reasoning": "hm"}), (0, {"content": "yes"})], [{"reasoning": "hm", "content": "yes"}]),
        ([(0, {"tool_calls": [CALL]})], [{"tool_calls": [{name: CALL[name] for name in CALL if name != "index"}]}]),
        ([(0, {"content": "a"}), (1, {"content": "b"})], [{"content": "a"}, {"content": "b"}]),
    ],
)
def test_what_comes_beside_a_text_is_kept_and_starts_again_after_a_yield(
    deltas: list[tuple[int, dict[str, object]]], messages: list[dict[str, object]]
) -> None:
    transcript = Continuation(chat(), TARGET.context_window)
    events = [{"choices": [{"index": n, "delta": delta, "token_ids": [5]}]} for n, delta in deltas]
    first = transcript.call()
    spoken(transcript, {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2]}, *events)
    assert not transcript.started, "it has nothing to continue from"
    again = transcript.call()
    assert (again.route, again.body, transcript.received) == (first.route, first.body, 0)
    ends = [{"choices": [{"index": n, "delta": {}, "finish_reason": "stop"}]} for n in range(len(messages))]
    spoken(transcript, *events, *ends, usage(2, 1, 3))
    outcome = transcript.done("")
    assert isinstance(outcome, Done)
    found = [choice["message"] for choice in orjson.loads(outcome.body)["choices"]]
    assert [{name: choice[name] for name in wanted} for choice, wanted in zip(found, messages, strict=True)] == messages
    assert (outcome.usage, outcome.mended) == (Usage(2, 1, 3), ())
