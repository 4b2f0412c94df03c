"""A simulation of vLLM's prefix cache. It does no I/O.

A block has 16 tokens. Its key is the hash of its tokens, all tokens before them, and the `cache_salt` of the request. The
least recently used blocks are evicted.
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
        """The number of cached tokens at the begin of the prompt: whole blocks, without the last token, which is computed."""
        found = 0
        for name in _names(salt, tokens[:-1]):
            if name not in self._blocks:
                break
            found += BLOCK_TOKENS
        return found

    def keep(self, salt: str, tokens: Sequence[int]) -> None:
        """Store the whole blocks of a prompt and its answer. The last block is evicted first, because it extends the others."""
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
