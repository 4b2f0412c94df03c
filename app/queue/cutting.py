"""Cut a batch into chunks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Items `lo` to `hi`, both included, and their estimated tokens together."""

    lo: int
    hi: int
    est_tokens: int

    @property
    def n(self) -> int:
        """How many items."""
        return self.hi - self.lo + 1


def cut(est_tokens: Sequence[int], *, max_tokens: int, max_items: int) -> list[Cut]:
    """Split items, in order, into ranges of at most `max_items` items and `max_tokens` estimated tokens.

    An item beyond `max_tokens` gets a chunk of its own. Every item is in exactly one chunk.
    """
    cuts: list[Cut] = []
    lo = tokens = 0
    for seq, estimate in enumerate(est_tokens):
        if seq > lo and (tokens + estimate > max_tokens or seq - lo >= max_items):
            cuts.append(Cut(lo, seq - 1, tokens))
            lo, tokens = seq, 0
        tokens += estimate
    if est_tokens:
        cuts.append(Cut(lo, len(est_tokens) - 1, tokens))
    return cuts
