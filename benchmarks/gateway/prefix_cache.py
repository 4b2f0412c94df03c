"""A simulated prefix cache: what vLLM's would find of a prompt, without an engine. Pure.

Blocks of 16 tokens, each known by its tokens, all before them and the request's `cache_salt`; the least recently used go.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 16


class SimulatedPrefixCache:
    """Holds at most `blocks` blocks."""

    def __init__(self, blocks: int) -> None:
        self._most = blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def hit(self, salt: str, tokens: Sequence[int]) -> int:
        """How many tokens at the prompt's begin are cached: whole blocks, and never all, as one token must be computed."""
        found = 0
        for name in _names(salt, tokens[:-1]):
            if name not in self._blocks:
                break
            found += BLOCK_TOKENS
        return found

    def keep(self, salt: str, tokens: Sequence[int]) -> None:
        """Store the whole blocks of a prompt and its answer; the last block goes first, since others build on the first."""
        for name in reversed(list(_names(salt, tokens))):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)


def _names(salt: str, tokens: Sequence[int]) -> Iterator[int]:
    name = hash(salt)
    for begin in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        name = hash((name, *tokens[begin : begin + BLOCK_TOKENS]))
        yield name
