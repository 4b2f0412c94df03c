"""An engine fetches a URL of a caller only from a host that its model lists: other media are in the body, or refused."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url
from yarl import URL

from app.batches.validation import openai_lines, workers_ai
from app.batches.validation.openai import embedding, response
from app.batches.validation.text_generation import Examine, ItemError, ItemRules, examine
from app.engines import media_urls
from app.engines.requests import CHAT

RULES = ItemRules(context_window=1000, default_max_tokens=16, vision=True)
ELSEWHERE = [
    "http://example.com/a.png",
    "https://example.com/a.png",
    "HTTPS://example.com/a.png",
    "file:///etc/passwd",
    "ftp://example.com/a.png",
    "s3://bucket/a.png",
    "//example.com/a.png",
    "/etc/passwd",
    "data:text/html,x",
]
INSIDE = "data:image/png;base64,iVBORw0KGgo="


def chat(url: str, *, bare: bool = False) -> dict[str, Any]:
    image = url if bare else {"url": url}
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": image}]}]}


@pytest.mark.parametrize("url", ELSEWHERE)
@pytest.mark.parametrize("bare", [True, False])
def test_a_chat_that_names_media_elsewhere_is_refused(url: str, bare: bool) -> None:
    with pytest.raises(ItemError, match="remote and file media are refused") as refused:
        examine(chat(url, bare=bare), RULES)
    assert refused.value.field == "messages[0].content[0].image_url"


@pytest.mark.parametrize("url", [url for url in ELSEWHERE if not url.startswith("data:")])
def test_so_is_a_response(url: str) -> None:
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    with pytest.raises(ItemError, match="remote and file media are refused") as refused:
        response({"input": items}, RULES)
    assert refused.value.field == "input[0].content[0].image_url"


@pytest.mark.parametrize("name", ["image_url", "video_url", "audio_url", "input_audio", "image_embeds", "image_pil"])
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize("way", [examine, workers_ai.examine, openai_lines.ROUTES[CHAT][1]])
def test_a_text_that_is_media_by_another_key_is_refused_by_that_keys_name(way: Examine, role: str, name: str) -> None:
    """As vLLM reads it where there is a `uuid`."""
    part = {"type": "text", "text": "x", name: {"url": "http://169.254.169.254/"}, "uuid": "u"}
    with pytest.raises(ItemError, match="is not a field of a part of type text; remove it") as refused:
        way({"messages": [{"role": role, "content": [part]}]}, RULES)
    assert refused.value.field == f"messages[0].content[0].{name}"


@pytest.mark.parametrize("holder", ["content", "output", "summary"])
def test_so_is_one_of_a_response_wherever_it_stands(holder: str) -> None:
    disguised = {"type": "input_text", "text": "x", "image_embeds": "AAAA", "uuid": "u"}
    with pytest.raises(ItemError) as refused:
        response({"input": [{"role": "user", holder: [disguised]}]}, RULES)
    assert refused.value.field == f"input[0].{holder}[0].image_embeds"
    shown = {"role": "user", holder: {"type": "computer_screenshot", "image_url": "https://a.example"}}
    with pytest.raises(ItemError, match="must be a string or a list of parts"):
        response({"input": [shown]}, RULES)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"type": "input_image", "image_url": "http://169.254.169.254/"}, "type"),
        ({"type": "input_image", "image_url": INSIDE}, "type"),
        ({"type": "computer_call_output", "output": "x"}, "type"),
        ({"type": {"a": 1}, "role": "user", "content": "x"}, "type"),
        ({"role": "user", "content": "x", "image_url": "http://169.254.169.254/"}, "image_url"),
        ({"type": "message", "role": "user", "content": "x", "media": [{"url": "file:///etc/passwd"}]}, "media[0].url"),
        (
            {"type": "code_interpreter_call", "outputs": [{"type": "image", "url": "https://a.example"}]},
            "outputs[0].url",
        ),
    ],
)
def test_an_input_item_that_is_media_itself_or_names_some_beside_its_parts_is_refused(
    item: dict[str, Any], field: str
) -> None:
    with pytest.raises(ItemError) as refused:
        response({"input": [{"role": "user", "content": "x"}, item]}, RULES)
    assert refused.value.field == f"input[1].{field}"


def test_items_of_text_pass_whatever_it_says() -> None:
    said = "see https://a.example/a.png"
    items = [
        {"type": "message", "role": "user", "content": said},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": said}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"image_url": "https://a.example"}'},
        {"type": "function_call_output", "call_id": "c", "output": said},
    ]
    assert response({"input": items}, RULES).est_tokens > 0


@pytest.mark.parametrize("name", ["text", "contexts", "query", "messages"])
def test_an_embedding_has_no_second_input_that_is_not_looked_at(name: str) -> None:
    """What a Workers AI item calls text becomes the engine's input, which vLLM takes for a chat if it looks like one."""
    with pytest.raises(ItemError) as refused:
        embedding({"input": "x", name: chat(ELSEWHERE[0])["messages"]}, RULES)
    assert refused.value.field == name


def test_an_image_has_no_uuid_which_would_show_what_another_tenant_sent() -> None:
    item = chat(INSIDE)
    item["messages"][0]["content"][0] |= {"uuid": "u"}
    with pytest.raises(ItemError) as refused:
        examine(item, RULES)
    assert refused.value.field == "messages[0].content[0].uuid"


def test_media_inside_the_body_pass_where_the_model_sees() -> None:
    assert examine(chat(INSIDE), RULES).est_tokens > 0
    assert response({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": INSIDE}]}]}, RULES)
    blind = ItemRules(context_window=1000, default_max_tokens=16)
    with pytest.raises(ItemError, match="does not accept images"):
        examine(chat(INSIDE), blind)
    with pytest.raises(ItemError, match="does not accept images"):
        response({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": INSIDE}]}]}, blind)


def test_an_earlier_answer_may_cite_what_lies_elsewhere() -> None:
    said = {"type": "output_text", "text": "see", "annotations": [{"type": "url_citation", "url": "https://a.example"}]}
    assert response({"input": [{"role": "assistant", "content": [said]}]}, RULES).est_tokens > 0


LISTED = ItemRules(
    context_window=1000, default_max_tokens=16, vision=True, media_hosts=frozenset({"img.example.com", "169.254.1.1"})
)


@pytest.mark.parametrize("path", ["", "/", "/a/b.png", "/a.png?size=1&x=%20", "?a=b"])
@pytest.mark.parametrize("bare", [True, False])
def test_a_listed_host_is_fetched_from(path: str, bare: bool) -> None:
    item = chat(f"https://img.example.com{path}", bare=bare)
    examine(item, LISTED)
    assert media_urls.hosts_in(item) == {"img.example.com"}
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": f"https://img.example.com{path}"}]}]
    response({"input": items}, LISTED)
    assert media_urls.hosts_in({"input": items}) == {"img.example.com"}


@pytest.mark.parametrize(
    "url",
    [
        *ELSEWHERE,
        "http://img.example.com/a.png",
        "https://IMG.example.com/a.png",
        "https://img.example.com:8443/a.png",
        "https://me@img.example.com/a.png",
        "https://img.example.com@evil.example/a.png",
        "https://evil.example\\@img.example.com/",
        "https://img.example.com\\@evil.example/",
        "https://evil.example#@img.example.com/",
        "https://img.example.com#x",
        "https://sub.img.example.com/a.png",
        "https://img.example.com./a.png",
        "https://img.example.com/a\n.png",
        "https://img.example.com/\u00e4",
        " https://img.example.com/",
    ],
)
def test_no_other_way_to_write_a_url_passes_as_a_listed_host(url: str) -> None:
    with pytest.raises(ItemError, match="must be a data:image/…;base64 URL, or an https URL of") as refused:
        examine(chat(url), LISTED)
    assert "img.example.com" in str(refused.value)


@given(st.text(max_size=12), st.text(max_size=12))
def test_what_passes_has_the_listed_host_for_every_parser(before: str, after: str) -> None:
    url = f"https://{before}img.example.com{after}"
    if media_urls.host_of(url) == "img.example.com":
        assert urlsplit(url).hostname == parse_url(url).host == URL(url).host == "img.example.com"
        assert (urlsplit(url).port, urlsplit(url).username) == (None, None)
