"""The fake engine's language: prompts to token ids and back, and the tokens of each answer.

A prompt's token is four of its bytes. An answer's tokens are numbered pieces of `echo: <prompt>`, the last one an end token
without text; each names the prompt it belongs to. So a continuation can be told from a prompt, is checked token by token,
and says exactly what the uninterrupted answer would have said.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

_GENERATED = 1 << 50


@dataclass(frozen=True)
class Answer:
    """What the engine says to `prompt`, in `length` tokens."""

    prompt: str
    length: int

    def token(self, index: int) -> int:
        """The id of the token at `index`."""
        return _GENERATED | zlib.crc32(self.prompt.encode()) << 16 | index

    def text(self, index: int) -> str:
        """The text of the token at `index`; nothing for the end token."""
        said, pieces = f"echo: {self.prompt}", self.length - 1
        if index >= pieces:
            return ""
        return said[len(said) * index // pieces : len(said) * (index + 1) // pieces]


def encode(text: str) -> list[int]:
    """A prompt's tokens, at least one."""
    data = text.encode()
    return [int.from_bytes(b"\1" + data[i : i + 4], "big") for i in range(0, max(1, len(data)), 4)]


def decode(tokens: Sequence[int]) -> str:
    """The text of a prompt's tokens."""
    return b"".join(token.to_bytes(5, "big").lstrip(b"\0")[1:] for token in tokens).decode(errors="replace")


def split(tokens: Sequence[int]) -> tuple[str, list[int]]:
    """The prompt's text, and the answer's tokens behind it."""
    prompt = [token for token in tokens if token < _GENERATED]
    return decode(prompt), list(tokens[len(prompt) :])


def owner(token: int) -> int:
    """Which prompt an answer's token belongs to, as `crc32` of it."""
    return (token & ~_GENERATED) >> 16


def index(token: int) -> int:
    """The place of an answer's token in its answer."""
    return token & 0xFFFF


def known(tokens: Sequence[int]) -> bool:
    """Whether every token is of this language: a prompt's begins with a byte 1, which tells how many follow."""
    return all(token >= _GENERATED or token.bit_length() in (1, 9, 17, 25, 33) for token in tokens)
