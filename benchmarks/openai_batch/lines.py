"""The batch files of the arms, and what came back of them."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from benchmarks.harness import MODEL
from benchmarks.prompts import WORDS

CHAT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_TEXTS = [" ".join(random.Random(n).choices(WORDS, k=800)) for n in range(64)]


def name(number: int) -> str:
    """The custom id of a line. The prompt begins with it, so that the engine can identify the request."""
    return f"line-{number:06d}"


def line(number: int, size: int, tokens: int = 4) -> bytes:
    """One line of `size` bytes, its end included."""
    text = _TEXTS[number % 64]
    body = {"model": MODEL, "max_tokens": tokens, "messages": [{"role": "user", "content": f"{name(number)} "}]}
    bare = json.dumps({"custom_id": name(number), "method": "POST", "url": CHAT, "body": body})
    head, tail = bare[: -len('"}]}}')], '"}]}}\n'
    return (head + text[: max(0, size - len(head) - len(tail))] + tail).encode()


def write(path: Path, count: int, size: int, *, first: int = 0, tokens: int = 4) -> Path:
    """Write a batch file with lines numbered from `first`."""
    with path.open("wb") as file:
        file.writelines(line(number, size, tokens) for number in range(first, first + count))
    return path


def answered(content: Iterable[bytes]) -> Counter[str]:
    """How often each custom id has an answer with status 200 in the lines of an output file."""
    return Counter(
        str(found["custom_id"]) for found in _parsed(content) if (found.get("response") or {}).get("status_code") == 200
    )


def _parsed(content: Iterable[bytes]) -> Iterator[dict[str, dict[str, int]]]:
    for text in b"".join(content).splitlines():
        if text.strip():
            yield json.loads(text)
