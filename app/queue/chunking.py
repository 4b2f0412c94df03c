"""Cut a batch into chunks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Most:
    """The most that a chunk under budgets can cost and use: cost in 10^-9 of the currency, tokens.

    `expected_*`: what is reserved for it at most; None: the maximum.
    """

    budgets: Sequence[int]
    maximum_cost: int
    maximum_tokens: int
    expected_cost: int | None = None
    expected_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ItemAmounts:
    """The most that each item of a batch under budgets can cost and use, and what it is expected to.

    What a chunk is expected to cost and use is at most `most_cost` and `most_tokens`, unless it has only one item. None: no
    limit.
    """

    budgets: Sequence[int]
    maximum_cost: Sequence[int]
    maximum_tokens: Sequence[int]
    expected_cost: Sequence[int]
    expected_tokens: Sequence[int]
    most_cost: int | None = None
    most_tokens: int | None = None

    def all_fit(self) -> bool:
        """Whether one chunk could have all items."""
        return not self.exceed(sum(self.expected_cost), sum(self.expected_tokens))

    def exceed(self, cost: int, tokens: int) -> bool:
        """Whether items that are expected to cost and use so much are too much for one chunk."""
        return (self.most_cost is not None and cost > self.most_cost) or (
            self.most_tokens is not None and tokens > self.most_tokens
        )

    def of(self, items: Sequence[int], *, ranged: bool) -> Most:
        """The most of a chunk of these items. `ranged`: they follow one another."""
        part = slice(items[0], items[-1] + 1)

        def total(column: Sequence[int]) -> int:
            return sum(column[part]) if ranged else sum(map(column.__getitem__, items))

        most = Most(self.budgets, total(self.maximum_cost), total(self.maximum_tokens))
        if self.expected_cost is self.maximum_cost and self.expected_tokens is self.maximum_tokens:
            return most
        return replace(most, expected_cost=total(self.expected_cost), expected_tokens=total(self.expected_tokens))


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored: `n` items between `lo` and `hi`, both included, and the sum of their estimated tokens.

    `seqs` lists its items in the order of execution. None: every item from `lo` to `hi`, in that order.
    `line_id`: the line of the ledger; None: that of the batch. `most`: None where no budget applies.
    """

    lo: int
    hi: int
    n: int
    est_tokens: int
    seqs: list[int] | None = None
    line_id: int | None = None
    most: Most | None = None


def cut(
    est_tokens: Sequence[int],
    *,
    max_tokens: int,
    max_items: int,
    keys: Sequence[int] | None = None,
    seqs: Sequence[int] | None = None,
    line_id: int | None = None,
    amounts: ItemAmounts | None = None,
) -> list[NewChunk]:
    """Split items into chunks of at most `max_items` items and `max_tokens` estimated tokens.

    Items with the same value in `keys` (a shared prompt prefix, a session) are placed next to each other, so that the engine's
    prefix cache serves them. Groups keep the order of their first items. A group that fits into one chunk is not split. A larger
    item gets its own chunk. `seqs`: the numbers of the items, if not 0, 1, 2, … `amounts`: where budgets apply.
    """
    chunks: list[NewChunk] = []
    chunk: list[int] = []
    limits = None if amounts is None or amounts.all_fit() else amounts
    tokens = expected_cost = expected_tokens = cost = used = 0

    def close() -> None:
        nonlocal chunk, tokens, expected_cost, expected_tokens
        chunks.append(_numbered(chunk, tokens, seqs, line_id, amounts))
        chunk, tokens, expected_cost, expected_tokens = [], 0, 0, 0

    for group in _groups(len(est_tokens), keys):
        if chunk and len(group) > 1:
            size = sum(est_tokens[i] for i in group)
            fits = size <= max_tokens and len(group) <= max_items
            if fits and (tokens + size > max_tokens or len(chunk) + len(group) > max_items):
                close()
        for i in group:
            full = tokens + est_tokens[i] > max_tokens or len(chunk) >= max_items
            if limits:
                cost, used = limits.expected_cost[i], limits.expected_tokens[i]
                full = full or limits.exceed(expected_cost + cost, expected_tokens + used)
            if chunk and full:
                close()
            chunk.append(i)
            tokens, expected_cost, expected_tokens = (
                tokens + est_tokens[i],
                expected_cost + cost,
                expected_tokens + used,
            )
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
    chunk: list[int], tokens: int, seqs: Sequence[int] | None, line_id: int | None, amounts: ItemAmounts | None
) -> NewChunk:
    """The chunk with the items' numbers. `seqs` is left out if it would equal the range."""
    items = chunk if seqs is None else [seqs[i] for i in chunk]
    most = amounts.of(chunk, ranged=_ranged(chunk)) if amounts else None
    return NewChunk(min(items), max(items), len(items), tokens, None if _ranged(items) else items, line_id, most)


def _ranged(numbers: list[int]) -> bool:
    """Whether each number is one more than the one before it."""
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))
