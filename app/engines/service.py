"""Operations on engines: find pools, promise windows, take, release, list, drain and undrain. `overview` reads them.

A worker reports its engine with its heartbeat (`engine_report`, `app.queue.heartbeat`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from psycopg.types.json import Jsonb

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.engines import sql
from app.engines.adoption import EngineProblem
from app.engines.catalogue import Task
from app.engines.dialects import DIALECTS, VLLM, Terms
from app.engines.engine_list import KnownEngine, ListedEngine

FORGOTTEN_DAYS = 7  # after which an engine that nobody has heard of is forgotten
_FORGOTTEN_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine as its worker last reported it. `controlled`: a live worker holds its controller lease.

    `arrival_url`: where that worker receives announcements of synchronous requests. `slots`: requests it runs at once.
    `served_name`: the engine's own name for the model, if it differs.
    `expected_seconds`: time until it should answer; None if it answers, or if this is unknown. `dialect`: the kind of engine.
    `batch_in_flight`: batch requests in it. `hungry`: its worker waits for work.
    """

    engine_id: int
    name: str
    model: str
    url: str
    arrival_url: str | None
    mode: str
    slots: int
    state: str
    reason: str | None
    allowance: int
    heartbeat_at: datetime
    controlled: bool
    intake: str
    served_name: str | None = None
    expected_seconds: float | None = None
    dialect: str = VLLM.name
    batch_in_flight: int = 0
    hungry: bool = False

    @property
    def terms(self) -> Terms:
        """How to speak to it, for synchronous requests."""
        return Terms(DIALECTS.get(self.dialect, VLLM), None)

    @property
    def request_model(self) -> str:
        """The model's name in requests to this engine."""
        return self.served_name or self.model


async def ensure_pool(conn: Connection, model: str) -> int:
    """The pool of the engines that serve this model. It is created on first use."""
    while True:
        row = await (await conn.execute(sql.FIND_POOL, {"model": model})).fetchone()
        if row is not None:
            return int(row[0])
        await conn.execute(sql.ADD_POOL, {"model": model})


async def is_taken(conn: Connection, *, name: str, url: str, worker_id: int) -> bool:
    """Whether another worker with a live lease controls this engine, or one at this URL. Nothing waits for this."""
    values = {"name": name, "url": url, "worker_id": worker_id}
    return await (await conn.execute(sql.IS_TAKEN, values)).fetchone() is not None


async def take_engine(
    conn: Connection,
    *,
    name: str,
    pool_id: int,
    url: str,
    mode: str,
    worker_id: int,
    slots: int = 256,
    arrival_url: str | None = None,
) -> int | None:
    """Take the controller lease of the engine `name`, and register the engine if it is new. Returns its id.

    None if another worker with a live lease controls it, under this name or under another name for the same URL. The
    caller then stands by and tries again.
    """
    parameters = {
        "name": name,
        "pool_id": pool_id,
        "url": url,
        "arrival_url": arrival_url,
        "mode": mode,
        "slots": slots,
        "worker_id": worker_id,
    }
    async with conn.transaction():
        await conn.execute(sql.ONE_URL, {"url": url})
        row = await (await conn.execute(sql.TAKE, parameters)).fetchone()
    return None if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that controls an engine, the engine's name, URL, mode and model, and the end of the worker's lease."""

    worker_id: int
    host: str
    pid: int
    name: str
    url: str
    mode: str
    model: str
    lease_until: datetime

    @property
    def worker(self) -> str:
        """The worker in words."""
        return f"worker {self.worker_id} (host {self.host}, pid {self.pid})"

    def outlives(self, before: "Holder | None") -> bool:
        """Whether it has renewed its lease since `before`. A killed worker does not."""
        return before is not None and before.worker_id == self.worker_id and before.lease_until < self.lease_until


async def holder(conn: Connection, name: str, url: str) -> Holder | None:
    """The worker that controls the engine of this name, else the one at this URL; None if no worker with a live lease does."""
    row = await (await conn.execute(sql.HOLDER, {"name": name, "url": url})).fetchone()
    return None if row is None else Holder(*row)


async def promise(conn: Connection, pool_id: int, name: str, window: int, task: Task) -> int:
    """Store the context window in tokens that the engine `name`, which was just taken, promises for a model that no catalogue
    describes. Returns the window in force, which may be larger. Call inside the transaction of `take_engine`.
    """
    await conn.execute(sql.LOCK_POOL, {"pool_id": pool_id})
    parameters = {"pool_id": pool_id, "name": name, "window": window, "task": task}
    row = await (await conn.execute(sql.PROMISE, parameters)).fetchone()
    assert row is not None
    return int(row[0])


async def promised(conn: Connection, model: str, name: str, window: int) -> int:
    """The window in tokens that would be in force if the engine `name` with this `window` were taken now for a model that no
    catalogue describes. Changes nothing.
    """
    row = await (await conn.execute(sql.PROMISED, {"model": model, "name": name, "window": window})).fetchone()
    return window if row is None else int(row[0])


async def adopted_models(conn: Connection) -> list[tuple[str, int, Task]]:
    """Name, context window and task of every model that an attached engine brought."""
    return [(row[0], row[1], row[2]) for row in await (await conn.execute(sql.ADOPTED)).fetchall()]


async def served_models(conn: Connection) -> frozenset[str]:
    """The models that an engine serves, or has served within FORGOTTEN_DAYS."""
    return frozenset([row[0] for row in await (await conn.execute(sql.SERVED)).fetchall()])


async def note_engine(conn: Connection, *, name: str, url: str, problem: EngineProblem) -> None:
    """Store the problem of an attached engine that no worker controls. Does nothing if another worker controls it."""
    parameters = {"name": name, "url": url, "mode": "attached", "reason": problem.code, "problems": _json((problem,))}
    await conn.execute(sql.NOTE, parameters | {"worker_id": None})


async def start_seconds(conn: Connection, engine_id: int) -> float | None:
    """How long the engine's last start took, as its workers measured; None if none did."""
    row = await (await conn.execute(sql.START_SECONDS, {"engine_id": engine_id})).fetchone()
    return None if row is None else row[0]


async def release_engine(conn: Connection, engine_id: int, worker_id: int, *, lapsed: bool = False) -> None:
    """Release the controller lease, so that a standby worker need not wait until it lapses. `lapsed`: it has done so, and the
    worker goes on without it.
    """
    await conn.execute(sql.RELEASE, {"engine_id": engine_id, "worker_id": worker_id, "lapsed": lapsed})


async def list_engines(conn: Connection) -> list[Engine]:
    """Every engine that was ever taken, by name."""
    return [Engine(*row) for row in await (await conn.execute(sql.LIST)).fetchall()]


async def forget_old(conn: Connection) -> list[int]:
    """Forget some of the engines that nobody has heard of for FORGOTTEN_DAYS. Returns their ids."""
    values = {"days": FORGOTTEN_DAYS, "limit": _FORGOTTEN_AT_ONCE}
    return [engine_id for (engine_id,) in await (await conn.execute(sql.FORGET, values)).fetchall()]


async def gone(conn: Connection) -> int:
    """How many engines `forget_old` has left because others have locked them."""
    row = await (await conn.execute(sql.COUNT_GONE, {"days": FORGOTTEN_DAYS})).fetchone()
    return row[0] if row else 0


async def known(conn: Connection, listed: Sequence[ListedEngine], prefix: str | None = None) -> list[KnownEngine]:
    """The rows of these engines, by URL or name, and of all whose name begins with `prefix`."""
    parameters = {"urls": [each.url for each in listed], "names": [each.name for each in listed], "prefix": prefix}
    return [KnownEngine(*row) for row in await (await conn.execute(sql.KNOWN, parameters)).fetchall()]


async def change_intake(conn: Connection, name: str, verb: Literal["drain", "drain now", "undrain"]) -> bool:
    """Drain or undrain an engine. Repeating it changes nothing. Returns False if no engine has this name."""
    async with conn.transaction():
        if (row := await (await conn.execute(sql.change_intake(verb), {"name": name})).fetchone()) is not None:
            act, (before, after) = Act(f"engine.{verb.replace(' ', '_')}"), row
            await log.record(conn, Record(act, name, before={"intake": before}, after={"intake": after}))
            return True
    return await (await conn.execute(sql.EXISTS, {"name": name})).fetchone() is not None


def _json(problems: Sequence[EngineProblem]) -> Jsonb:
    return Jsonb([asdict(problem) for problem in problems])


async def id_of(conn: Connection, name: str) -> int | None:
    """The id of the engine of this name; None: there is none."""
    row = await (await conn.execute(sql.ID_OF, {"name": name})).fetchone()
    return None if row is None else int(row[0])
