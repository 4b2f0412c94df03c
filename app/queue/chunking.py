"""Cut a batch into chunks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worst:
    """The most that a chunk under budgets can cost and use: `cost` in 10^-9 of the currency, `tokens`.

    `likely`: per mille of it that a hold takes at most; None: all of it.
    """

    lane_id: int
    cost: int
    tokens: int
    likely: int | None = None


@dataclass(frozen=True, slots=True)
class ItemWorsts:
    """The most that each item of a batch under budgets can cost and use, and what it likely does at most.

    A chunk's likely cost and tokens are at most `most_cost` and `most_tokens`, unless it has only one item. None: no limit.
    """

    lane_id: int
    cost: Sequence[int]
    tokens: Sequence[int]
    likely_cost: Sequence[int]
    likely_tokens: Sequence[int]
    most_cost: int | None = None
    most_tokens: int | None = None

    def all_fit(self) -> bool:
        """Whether one chunk could have all items."""
        return not self.exceed(sum(self.likely_cost), sum(self.likely_tokens))

    def exceed(self, cost: int, tokens: int) -> bool:
        """Whether items of this likely cost and these likely tokens are too much for one chunk."""
        return (self.most_cost is not None and cost > self.most_cost) or (
            self.most_tokens is not None and tokens > self.most_tokens
        )

    def of(self, items: Sequence[int], *, ranged: bool) -> Worst:
        """The most of a chunk of these items. `ranged`: they follow one another."""
        part = slice(items[0], items[-1] + 1)

        def total(column: Sequence[int]) -> int:
            return sum(column[part]) if ranged else sum(map(column.__getitem__, items))

        cost, tokens = total(self.cost), total(self.tokens)
        if self.likely_cost is self.cost and self.likely_tokens is self.tokens:
            return Worst(self.lane_id, cost, tokens)
        likely_cost, likely_tokens = total(self.likely_cost), total(self.likely_tokens)
        likely = max(_per_mille(likely_cost, cost), _per_mille(likely_tokens, tokens))
        return Worst(self.lane_id, cost, tokens, likely if likely < 1000 else None)


def _per_mille(part: int, whole: int) -> int:
    """The share, rounded up, from 1 to 1000. Of nothing: 1."""
    return min(1000, max(1, -(-part * 1000 // whole))) if whole else 1


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored: `n` items between `lo` and `hi`, both included, and the sum of their estimated tokens.

    `seqs` lists its items in the order of execution. None: every item from `lo` to `hi`, in that order.
    `line_id`: the line of the ledger; None: that of the batch. `worst`: None where no budget applies.
    """

    lo: int
    hi: int
    n: int
    est_tokens: int
    seqs: list[int] | None = None
    line_id: int | None = None
    worst: Worst | None = None


def cut(
    est_tokens: Sequence[int],
    *,
    max_tokens: int,
    max_items: int,
    keys: Sequence[int] | None = None,
    seqs: Sequence[int] | None = None,
    line_id: int | None = None,
    worsts: ItemWorsts | None = None,
) -> list[NewChunk]:
    """Split items into chunks of at most `max_items` items and `max_tokens` estimated tokens.

    Items with the same value in `keys` (a shared prompt prefix, a session) are placed next to each other, so that the engine's
    prefix cache serves them. Groups keep the order of their first items. A group that fits into one chunk is not split. A larger
    item gets its own chunk. `seqs`: the numbers of the items, if not 0, 1, 2, … `worsts`: where budgets apply.
    """
    chunks: list[NewChunk] = []
    chunk: list[int] = []
    limits = None if worsts is None or worsts.all_fit() else worsts
    tokens = likely_cost = likely_tokens = cost = used = 0

    def close() -> None:
        nonlocal chunk, tokens, likely_cost, likely_tokens
        chunks.append(_numbered(chunk, tokens, seqs, line_id, worsts))
        chunk, tokens, likely_cost, likely_tokens = [], 0, 0, 0

    for group in _groups(len(est_tokens), keys):
        if chunk and len(group) > 1:
            size = sum(est_tokens[i] for i in group)
            fits = size <= max_tokens and len(group) <= max_items
            if fits and (tokens + size > max_tokens or len(chunk) + len(group) > max_items):
                close()
        for i in group:
            full = tokens + est_tokens[i] > max_tokens or len(chunk) >= max_items
            if limits:
                cost, used = limits.likely_cost[i], limits.likely_tokens[i]
                full = full or limits.exceed(likely_cost + cost, likely_tokens + used)
            if chunk and full:
                close()
            chunk.append(i)
            tokens, likely_cost, likely_tokens = tokens + est_tokens[i], likely_cost + cost, likely_tokens + used
    if chunk:
        close()
    return chunks


def _groups(count: int, keys: Sequence[int] | None) -> Iterator[Sequence[int]]:
    """Indexes grouped by key. Without keys, or with distinct ones, each item is its own group, so that the order stays."""
    if keys is None or len(set(keys)) == count:
        yield from ((i,) for i in range(count))
        return
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(keys[i], []).append(i)
    yield from groups.values()


def _numbered(
    chunk: list[int], tokens: int, seqs: Sequence[int] | None, line_id: int | None, worsts: ItemWorsts | None
) -> NewChunk:
    """The chunk with the items' numbers. `seqs` is left out if it would equal the range."""
    items = chunk if seqs is None else [seqs[i] for i in chunk]
    worst = worsts.of(chunk, ranged=_ranged(chunk)) if worsts else None
    return NewChunk(min(items), max(items), len(items), tokens, None if _ranged(items) else items, line_id, worst)


def _ranged(numbers: list[int]) -> bool:
    """Whether each number is one more than the one before it."""
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))
