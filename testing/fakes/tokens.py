"""The tokenizer of the fake engine: prompts to token ids and back, and the tokens of each answer.

A prompt's token is four of its bytes. An answer's tokens are numbered pieces of `echo: <prompt>`, the last one an end token
without text; each names its prompt. So the engine distinguishes a continuation from a prompt, checks it token by token,
and completes it exactly like an uninterrupted answer.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_GENERATED = 1 << 50


@dataclass(frozen=True)
class Answer:
    """The answer to `prompt`, in `length` tokens."""

    prompt: str
    length: int

    def token(self, index: int) -> int:
        """The id of the token at `index`."""
        return _GENERATED | zlib.crc32(self.prompt.encode()) << 16 | index

    def text(self, index: int) -> str:
        """The text of the token at `index`; nothing for the end token."""
        text, pieces = f"echo: {self.prompt}", self.length - 1
        if index >= pieces:
            return ""
        return text[len(text) * index // pieces : len(text) * (index + 1) // pieces]


def encode(text: str) -> list[int]:
    """A prompt's tokens, at least one."""
    data = text.encode()
    return [int.from_bytes(b"\1" + data[i : i + 4], "big") for i in range(0, max(1, len(data)), 4)]


def decode(tokens: Sequence[int]) -> str:
    """The text of a prompt's tokens."""
    return b"".join(token.to_bytes(5, "big").lstrip(b"\0")[1:] for token in tokens).decode(errors="replace")


def split(tokens: Sequence[int]) -> tuple[str, list[int]]:
    """The text of the prompt, and the tokens of the answer after it."""
    prompt = [token for token in tokens if token < _GENERATED]
    return decode(prompt), list(tokens[len(prompt) :])


def owner(token: int) -> int:
    """The `crc32` of the prompt that an answer's token belongs to."""
    return (token & ~_GENERATED) >> 16


def index(token: int) -> int:
    """The position of an answer's token in its answer."""
    return token & 0xFFFF


def known(tokens: Sequence[int]) -> bool:
    """Whether this tokenizer made every token. A prompt's token begins with a byte 1, which shows how many bytes follow."""
    return all(token >= _GENERATED or token.bit_length() in (1, 9, 17, 25, 33) for token in tokens)
