"""What 95 of 100 answers without a limit do not exceed, by account, workflow, task and model. Reservations of budgets use it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from app.db.pool import Connection
from app.metering import sql
from app.metering.lines import UNQUEUED, LineParts

LEAST_ANSWERS = 20  # fewer say nothing about the longest of twenty
_SHARE = 0.95


class Group(NamedTuple):
    """Whose answers are alike: lines that differ only in key, variant, prompt family, kind, endpoint or price."""

    tenant_id: int
    workflow: str
    task: str
    model: str


class LongAnswer(NamedTuple):
    """What was learned of a group: `p95` in tokens, of so many `answers`."""

    group: Group
    p95: int
    answers: int


def learned(samples: Iterable[tuple[LineParts, Sequence[int]]]) -> list[LongAnswer]:
    """From the lengths of answers on lines. Groups with few answers are left out. Pure."""
    lengths: dict[Group, list[int]] = defaultdict(list)
    for parts, tokens in samples:
        lengths[Group(parts.tenant_id, parts.workflow, parts.task, parts.model)] += tokens
    return [
        LongAnswer(group, sorted(found)[ceil(_SHARE * len(found)) - 1], len(found))
        for group, found in lengths.items()
        if len(found) >= LEAST_ANSWERS
    ]


async def queued_models(conn: Connection) -> tuple[list[int], list[str]]:
    """The accounts that have a budget, and the models of their queued work."""
    row = await (await conn.execute(sql.QUEUED_MODELS, {"unqueued": list(UNQUEUED)})).fetchone()
    return (row[0] or [], row[1] or []) if row else ([], [])


async def store(conn: Connection, found: Sequence[LongAnswer]) -> None:
    """Keep what was learned."""
    if found:
        values: dict[str, list[object]] = {
            name: [getattr(each.group, name) for each in found] for name in Group._fields
        }
        values |= {"p95": [each.p95 for each in found], "answers": [each.answers for each in found]}
        await conn.execute(sql.PUT_LENGTHS, values)
