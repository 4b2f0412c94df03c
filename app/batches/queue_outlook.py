"""The queue by model: what waits, how urgent it is, and when it will be done at the pace of the last minutes.

It comes from the open batches and their estimates, not from their items, so it costs little whatever the backlog. A batch counts
for the model that it was queued for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.batches import queue_outlook_sql as sql
from app.db.pool import Connection
from app.engines.catalogue import Catalogue
from app.queue.estimate import Missing, no_pace, until_served

HOUR, DAY = 1, 24


class WaitingRow(NamedTuple):
    """Open batches of one account for one model. `held`: they run only once somebody acts, or money or a key is there. `hours`:
    their deadline is within so many (HOUR, DAY); None: later, or never. `tokens`: estimated, without what is done.
    """

    tenant_id: int
    weight: float
    model: str
    held: bool
    hours: int | None
    batches: int
    tokens: float


class PoolRow(NamedTuple):
    """The engines of a model: pace in estimated tokens per second and its spread as a share (None: not measured); for how many
    seconds no item has ended, if the pace is 0; ready ones.
    """

    model: str
    pace: float | None
    spread: float | None
    still: float | None
    engines: int


@dataclass(frozen=True, slots=True)
class ModelQueue:
    """What waits for one model and runs on it. Tokens are estimated ones that are not done; `held` of them do not run now.

    `urgent`: of those that can run, with a deadline within HOUR and within DAY. `seconds`: until what can run is done; None:
    `missing` says why. `spread`: the usual error of that, as a share. `still`: as in PoolRow.
    """

    model: str
    batches: int
    tokens: float
    held: float
    urgent: tuple[float, float]
    engines: int
    pace: float | None
    spread: float | None
    seconds: float | None
    still: float | None = None

    @property
    def missing(self) -> Missing:
        """Why it is not known when what can run is done, where it is not."""
        return no_pace(self.pace) if self.engines else Missing.ENGINE

    @property
    def able(self) -> float:
        """The tokens that can run."""
        return self.tokens - self.held


async def read(conn: Connection, models: Catalogue, tenant_id: int | None) -> list[ModelQueue]:
    """The queue of an account, or of all, by model; the longest first."""
    rows = [WaitingRow(*row) for row in await (await conn.execute(sql.WAITING)).fetchall()]
    pools = [PoolRow(*row) for row in await (await conn.execute(sql.POOLS)).fetchall()]
    return queues([row._replace(model=_served(models, row.model)) for row in rows], pools, tenant_id)


def _served(models: Catalogue, name: str) -> str:
    model = models.resolve(name)
    return model.served if model else name


def queues(rows: Sequence[WaitingRow], pools: Sequence[PoolRow], tenant_id: int | None) -> list[ModelQueue]:
    """The same from its rows. Pure. The others of an account get their fair share meanwhile."""
    known: Mapping[str, PoolRow] = {pool.model: pool for pool in pools}
    own: dict[str, list[WaitingRow]] = {}
    for row in rows:
        if tenant_id in (None, row.tenant_id):
            own.setdefault(row.model, []).append(row)
    found = [
        _queue(known.get(model, PoolRow(model, None, None, None, 0)), mine, list(_others(rows, model, tenant_id)))
        for model, mine in own.items()
    ]
    return sorted(found, key=lambda each: (-each.tokens, each.model))


def _others(rows: Sequence[WaitingRow], model: str, tenant_id: int | None) -> Iterator[tuple[float, float]]:
    """The weight and the tokens that can run of each other account. For the installation there is no other."""
    found: dict[int, tuple[float, float]] = {}
    for row in rows:
        if tenant_id is not None and row.tenant_id != tenant_id and row.model == model and not row.held:
            found[row.tenant_id] = row.weight, found.get(row.tenant_id, (0.0, 0.0))[1] + row.tokens
    yield from found.values()


def _queue(pool: PoolRow, mine: Sequence[WaitingRow], others: Sequence[tuple[float, float]]) -> ModelQueue:
    tokens, held = sum(row.tokens for row in mine), sum(row.tokens for row in mine if row.held)
    in_hour, in_day = (
        sum(row.tokens for row in mine if not row.held and row.hours is not None and row.hours <= most)
        for most in (HOUR, DAY)
    )
    seconds = None
    if pool.pace and pool.engines:
        seconds = until_served(tokens - held, mine[0].weight, others, pool.pace)
    batches = sum(row.batches for row in mine)
    urgent = in_hour, in_day
    return ModelQueue(
        pool.model, batches, tokens, held, urgent, pool.engines, pool.pace, pool.spread, seconds, pool.still
    )
