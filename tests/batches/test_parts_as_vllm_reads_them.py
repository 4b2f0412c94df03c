"""Generated content parts, compared with vLLM's own parser: the parts that vLLM loads as media are refused or images."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.batches.validation.openai import response
from app.batches.validation.text_generation import ItemError, ItemRules, examine
from app.engines.requests import CHAT, RESPONSES, Target, build
from tests.needs import module

pytestmark = pytest.mark.slow

chat_utils = module("vllm.renderers.chat_utils")
protocol = module("vllm.entrypoints.openai.chat_completion.protocol")
responses = module("vllm.entrypoints.openai.responses.protocol")
inputs = module("vllm.entrypoints.openai.responses.utils")

BLIND = ItemRules(context_window=4096, default_max_tokens=16)
SEES = ItemRules(context_window=4096, default_max_tokens=16, vision=True)
TARGET = Target("m", 16, 4096)
INSIDE = "data:image/png;base64,iVBORw0KGgo="
METADATA = "http://169.254.169.254/"
MEDIA = sorted(chat_utils._MEDIA_CONTENT_PART_KEYS)
KEYS = sorted(chat_utils._KNOWN_CONTENT_PART_FIELDS | set(chat_utils.MM_PARSER_MAP))
TYPES = [*sorted(chat_utils.MM_PARSER_MAP), "file", "computer_screenshot", None]
URLS = st.sampled_from([METADATA, "file:///etc/passwd", INSIDE, "DATA:image/png;base64,", "x", ""])
VALUES = st.one_of(
    URLS,
    st.none(),
    st.booleans(),
    st.builds(lambda url: {"url": url}, URLS),
    st.just({"data": "AAAA", "format": "wav"}),
)
PARTS = st.builds(
    lambda kind, text, rest: ({} if kind is None else {"type": kind}) | text | rest,
    st.sampled_from(TYPES),
    st.sampled_from([{}, {"text": "x"}]),
    st.dictionaries(st.sampled_from([*KEYS, "image_url", "uuid", "url"]), VALUES, max_size=3).map(
        lambda rest: {key: value for key, value in rest.items() if key not in ("type", "text")}
    ),
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
# Input items of responses: of any type, with parts where those may stand, and with the keys of parts beside them.
ITEMS = st.builds(
    lambda kind, held, rest: ({} if kind is None else {"type": kind}) | rest | held,
    st.sampled_from([*TYPES, "message", "reasoning", "function_call", "function_call_output", "computer_call_output"]),
    st.fixed_dictionaries(
        {},
        optional={
            "role": ROLES,
            "content": st.one_of(st.just("x"), st.lists(PARTS, max_size=2)),
            "output": st.one_of(st.just("x"), st.lists(PARTS, max_size=2)),
            "call_id": st.just("c"),
            "name": st.just("f"),
            "arguments": st.just("{}"),
        },
    ),
    st.dictionaries(st.sampled_from([*MEDIA, "image_url", "uuid", "url"]), VALUES, max_size=2),
)
DISGUISED = {"type": "text", "text": "x", "uuid": "u", "image_url": METADATA}


class _Recorder(chat_utils.BaseMultiModalContentParser):  # type: ignore[misc, name-defined]
    """Records the media that vLLM's parser would load, and loads none."""

    model_config = SimpleNamespace(enable_prompt_embeds=False)

    def __init__(self) -> None:
        super().__init__()
        self.media: list[Any] = []

    def _note(self, value: Any, uuid: str | None = None) -> None:
        self.media.append(value)

    parse_image = parse_image_embeds = parse_image_pil = parse_audio = parse_input_audio = _note
    parse_audio_embeds = parse_prompt_embeds = parse_video = parse_video_embeds = _note


_Recorder.__abstractmethods__ = frozenset()


def media_of(messages: list[Any]) -> list[Any]:
    """What vLLM loads for these messages; nothing of those it refuses."""
    parser = _Recorder()
    tracker = SimpleNamespace(create_parser=lambda **_: parser)
    for message in messages:
        for wrap in (True, False):
            try:
                chat_utils._parse_chat_message_content_parts(
                    message["role"],
                    message["content"] if isinstance(message.get("content"), list) else [],
                    tracker,
                    wrap_dicts=wrap,
                    interleave_strings=False,
                )
            except (ValueError, TypeError, AttributeError):
                continue
    return parser.media


def sent(item: dict[str, Any], route: str) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(build(item, route, TARGET, "salt").body)
    return body


def seen_in_chat(item: dict[str, Any]) -> list[Any]:
    """What vLLM loads of the chat that it is sent, whether it validates the body first or not."""
    body = sent(item, CHAT)
    found = media_of(body["messages"])
    try:
        validated = protocol.ChatCompletionRequest.model_validate(body).messages
        whole = [{**message, "content": list(message.get("content") or [])} for message in validated]  # validates parts
    except ValueError:
        return found
    return [*found, *media_of(whole)]


def seen_in_response(item: dict[str, Any]) -> list[Any]:
    body = sent(item, RESPONSES)
    raw = [message for message in body["input"] if "role" in message]
    found = media_of(raw)
    try:
        validated = responses.ResponsesRequest.model_validate(body).input
        messages = inputs.construct_input_messages(request_input=validated)
    except (ValueError, TypeError):
        return found
    return [*found, *media_of([dict(message) for message in messages])]


def passes(check: Any, item: dict[str, Any], rules: ItemRules) -> bool:
    try:
        check(item, rules)
    except ItemError:
        return False
    return True


def only_inside(media: list[Any]) -> bool:
    return all(isinstance(each, str) and each.startswith("data:image/") for each in media)


@given(part=PARTS, role=ROLES)
@example(part=DISGUISED, role="user")
@example(part={"type": "text", "text": "x", "uuid": "u", "video_url": METADATA}, role="tool")
def test_a_chat_that_passes_makes_vllm_load_nothing_but_images_inside_the_body(part: Any, role: str) -> None:
    item = {"messages": [{"role": role, "content": [part]}]}
    if passes(examine, item, SEES):
        assert only_inside(seen_in_chat(item))
    if passes(examine, item, BLIND):
        assert seen_in_chat(item) == []


@given(part=PARTS, role=ROLES)
@example(part={"type": "input_text", "text": "x", "uuid": "u", "image_embeds": "AAAA"}, role="user")
@example(part={"type": "input_image", "image_url": INSIDE}, role="user")
def test_so_does_a_response(part: Any, role: str) -> None:
    item = {"input": [{"role": role, "content": [part]}]}
    if passes(response, item, SEES):
        assert only_inside(seen_in_response(item))
    if passes(response, item, BLIND):
        assert seen_in_response(item) == []


@given(item=ITEMS)
@example(item={"type": "input_image", "image_url": METADATA})
@example(item={"type": "input_image", "role": "user", "image_url": METADATA})
@example(item={"role": "user", "content": "x", "image_url": METADATA})
def test_so_does_a_response_of_whole_items(item: dict[str, Any]) -> None:
    whole = {"input": [item]}
    if passes(response, whole, SEES):
        assert only_inside(seen_in_response(whole))
        assert item.get("image_url") in (None, INSIDE) or not isinstance(item["image_url"], str)
        assert item.get("type") is None or not item["type"].startswith("input_")
    if passes(response, whole, BLIND):
        assert seen_in_response(whole) == []


@given(part=PARTS, role=ROLES)
@example(part=DISGUISED, role="user")
@example(part={"type": "text", "image_url": METADATA}, role="user")
def test_what_was_queued_before_the_check_is_sent_with_the_keys_of_its_kind_alone(part: Any, role: str) -> None:
    """Items of earlier versions were let pass by their type."""
    if part.get("type") == "text":
        assert seen_in_chat({"messages": [{"role": role, "content": [part]}]}) == []


def test_vllm_does_take_the_disguise_for_an_image() -> None:
    """Else this file proves nothing."""
    assert media_of([{"role": "user", "content": [DISGUISED]}]) == [METADATA, METADATA]
