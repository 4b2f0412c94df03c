"""Cut a batch into chunks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Cut:
    """`n` items between `lo` and `hi`, both included, and their estimated tokens together.

    `seqs` is the order in which they are run; None: all of lo..hi, in that order.
    """

    lo: int
    hi: int
    n: int
    est_tokens: int
    seqs: list[int] | None = None


def cut(
    est_tokens: Sequence[int],
    *,
    max_tokens: int,
    max_items: int,
    keys: Sequence[int] | None = None,
    seqs: Sequence[int] | None = None,
) -> list[Cut]:
    """Split items into chunks of at most `max_items` items and `max_tokens` estimated tokens.

    Items with the same `keys` value (a shared prompt prefix, a session) stand together, groups in the order in which they
    first appear, so that a lease finds its prefixes in the engine's cache. A group that fits into a chunk is not torn apart.
    An item beyond `max_tokens` gets a chunk of its own. Every item is in exactly one chunk. `seqs`: the items' numbers if
    they are not 0, 1, 2, …
    """
    cuts: list[Cut] = []
    chunk: list[int] = []
    tokens = 0

    def close() -> None:
        nonlocal chunk, tokens
        cuts.append(_named(chunk, tokens, seqs))
        chunk, tokens = [], 0

    for group in _groups(len(est_tokens), keys):
        if chunk and len(group) > 1:
            weight = sum(est_tokens[i] for i in group)
            whole = weight <= max_tokens and len(group) <= max_items
            if whole and (tokens + weight > max_tokens or len(chunk) + len(group) > max_items):
                close()
        for i in group:
            if chunk and (tokens + est_tokens[i] > max_tokens or len(chunk) >= max_items):
                close()
            chunk.append(i)
            tokens += est_tokens[i]
    if chunk:
        close()
    return cuts


def _groups(count: int, keys: Sequence[int] | None) -> Iterator[Sequence[int]]:
    """Indexes by key. Without keys each item is a group of its own, which leaves the order as it is."""
    if keys is None or len(set(keys)) == count:
        yield from ((i,) for i in range(count))
        return
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(keys[i], []).append(i)
    yield from groups.values()


def _named(chunk: list[int], tokens: int, seqs: Sequence[int] | None) -> Cut:
    """The chunk in terms of item numbers; the array is left out where the range says the same."""
    items = chunk if seqs is None else [seqs[i] for i in chunk]
    lo, hi = min(items), max(items)
    ranged = items[0] == lo and all(b - a == 1 for a, b in pairwise(items))
    return Cut(lo, hi, len(items), tokens, None if ranged else items)
