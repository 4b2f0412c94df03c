"""No engine fetches what a caller names: media come inside the body or not at all."""

from typing import Any

import pytest

from app.batches.items import ItemError, ItemRules, examine
from app.batches.openai_inputs import response

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
    assert refused.value.field == "messages[0].content[0]"


@pytest.mark.parametrize("url", [url for url in ELSEWHERE if not url.startswith("data:")])
@pytest.mark.parametrize("name", ["image_url", "file_url"])
def test_so_is_a_response(url: str, name: str) -> None:
    items = [{"role": "user", "content": [{"type": "input_image", name: url}]}]
    with pytest.raises(ItemError, match="remote and file media are refused") as refused:
        response({"input": items}, RULES)
    assert refused.value.field == f"input[0].content[0].{name}"


def test_media_inside_the_body_pass_where_the_model_sees() -> None:
    assert examine(chat(INSIDE), RULES).est_tokens > 0
    assert response({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": INSIDE}]}]}, RULES)
    with pytest.raises(ItemError, match="does not take images"):
        examine(chat(INSIDE), ItemRules(context_window=1000, default_max_tokens=16))


def test_an_earlier_answer_may_cite_what_lies_elsewhere() -> None:
    said = {"type": "output_text", "text": "see", "annotations": [{"type": "url_citation", "url": "https://a.example"}]}
    assert response({"input": [{"role": "assistant", "content": [said]}]}, RULES).est_tokens > 0
