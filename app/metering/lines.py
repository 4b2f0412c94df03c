"""Lines: one row for each combination of account, key, labels, model, kind and price, whose id batches and usage carry.

A line has the price of its model at the time of the submit, so what is queued keeps its price.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from app.db.pool import Connection, Database
from app.engines.catalogue import Price
from app.metering import sql
from app.metering.budget_rules import Scope
from app.metering.money import TokenPrice
from app.metering.spend_labels import NO_SPEND_LABELS, SpendLabels

OTHER = "other"
SYNC = "sync"  # the kind of synchronous requests
DOOR = "door"  # the kind of requests through an engine's door
UNQUEUED = (SYNC, DOOR)  # kinds whose usage no batch has counted
MIXED = "mixed"  # the family or the endpoint of a chunk that has several
MOST_LINES, MOST_WORKFLOWS, MOST_TASKS, MOST_FAMILIES = 10_000, 50, 20, 200  # families: of a workflow
_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class LineParts:
    """What identifies a line. Prices: 10^-12 of `currency` per token; None: the model has none."""

    tenant_id: int
    key_id: str
    workflow: str
    task: str
    critical: bool
    variant: str
    family: str
    model: str
    kind: str
    endpoint: str = "-"
    price_in: int | None = None
    price_cached: int | None = None
    price_out: int | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The keys and the workflows that an account's budgets name. They are always kept, so that no work escapes its budget."""

    keys: frozenset[str] = frozenset()
    workflows: frozenset[str] = frozenset()


@dataclass(slots=True)
class KnownLabels:
    """The labels that an account's lines have. `families`: by workflow. `lines`: their number. `named`: by budgets."""

    workflows: set[str]
    tasks: set[str]
    families: dict[str, set[str]]
    lines: int
    named: Named = Named()

    def add(self, parts: LineParts) -> None:
        """Count one more line."""
        self.workflows.add(parts.workflow)
        self.tasks.add(parts.task)
        self.families.setdefault(parts.workflow, set()).add(parts.family)
        self.lines += 1


@lru_cache(4096)
def parts_of(
    tenant_id: int,
    key_id: str,
    labels: SpendLabels,
    model: str,
    kind: str,
    price: Price | None,
    endpoint: str = "-",
) -> LineParts:
    """The parts of the line of a request. `endpoint`: the engine's route."""
    per_token = TokenPrice.of(price, f"price of {model}") if price else None
    prices = (per_token.input, per_token.cached, per_token.output, per_token.currency) if per_token else ()
    named = labels.workflow, labels.task, labels.critical, labels.variant, labels.family
    return LineParts(tenant_id, key_id, *named, model, kind, endpoint, *prices)


def unlabelled(tenant_id: int, model: str, kind: str) -> LineParts:
    """The parts of the line of work whose line is not known."""
    return parts_of(tenant_id, "", NO_SPEND_LABELS, model, kind, None)


def without_labels(parts: LineParts, named: Named = Named()) -> LineParts:
    """The parts of the line for whatever has too many labels: only those that budgets name are left."""
    key_id = parts.key_id if parts.key_id in named.keys else ""
    workflow = parts.workflow if parts.workflow in named.workflows else OTHER
    return replace(parts, key_id=key_id, workflow=workflow, task=OTHER, variant=OTHER, family=OTHER)


def bounded(parts: LineParts, known: KnownLabels) -> LineParts:
    """The parts within the account's limits: a label beyond them is `other`, unless a budget names it. Pure."""
    if known.lines >= MOST_LINES:
        return without_labels(parts, known.named)
    workflow = parts.workflow
    if workflow not in known.named.workflows:
        workflow = _within(workflow, known.workflows, MOST_WORKFLOWS)
    task = _within(parts.task, known.tasks, MOST_TASKS)
    family = _within(parts.family, known.families.get(workflow, set()), MOST_FAMILIES)
    return replace(parts, workflow=workflow, task=task, family=family)


def _within(label: str, known: Collection[str], most: int) -> str:
    return label if label in known or len(known) < most else OTHER


class Lines:
    """The ids of lines, cached in this process. A line is never changed, and is removed only with its account.

    What has too many labels shares a line, until a budget names its key or its workflow.
    """

    def __init__(self) -> None:
        self._ids: dict[LineParts, int] = {}
        self._shared: dict[LineParts, LineParts] = {}  # the parts of the line that it has instead

    async def ids(self, database: Database, wanted: Sequence[LineParts]) -> list[int]:
        """The ids of these lines of one account, which are added if they are new."""
        if self._shared and (shared := {parts: self._shared[parts] for parts in wanted if parts in self._shared}):
            await self._forget_named(database, shared)
        known = {parts: self._ids[parts] for parts in wanted if parts in self._ids}
        missing = list(dict.fromkeys(parts for parts in wanted if parts not in known))
        if missing:
            async with database.relaxed() as conn:
                found = await _find(conn, missing)
            allowed = missing
            if None in found:
                # durably: a crash of the server must not take a line away whose id is cached
                async with database.transaction() as conn:
                    allowed, found = await _added(conn, missing)
            new = {parts: line_id for parts, line_id in zip(missing, found, strict=True) if line_id is not None}
            if len(self._ids) > _CACHED:
                self._ids.clear()
                self._shared.clear()
            self._ids |= new
            self._shared |= {parts: own for parts, own in zip(missing, allowed, strict=True) if parts != own}
            known |= new
        return [known[parts] for parts in wanted]

    async def _forget_named(self, database: Database, shared: Mapping[LineParts, LineParts]) -> None:
        """Forget the ids of those that a budget names now: they get a line of their own."""
        async with database.relaxed() as conn:
            named = await _named(conn, next(iter(shared)).tenant_id)
        for parts, own in shared.items():
            keeps_key = own.key_id == parts.key_id or parts.key_id not in named.keys
            if not keeps_key or (own.workflow != parts.workflow and parts.workflow in named.workflows):
                self._ids.pop(parts, None)
                self._shared.pop(parts, None)


def moved(parts: LineParts, model: str, price: Price | None) -> LineParts:
    """The parts of the line of the same work with another model, at its price."""
    per_token = TokenPrice.of(price, f"price of {model}") if price else None
    prices = (per_token.input, per_token.cached, per_token.output, per_token.currency) if per_token else (None,) * 4
    named = dict(zip(("price_in", "price_cached", "price_out", "currency"), prices, strict=True))
    return replace(parts, model=model, **named)  # type: ignore[arg-type]


async def with_model(conn: Connection, parts: LineParts, model: str, price: Price | None) -> int:
    """The line of the same work with another model, at its price. It is added if it is new."""
    [line_id] = await added(conn, [moved(parts, model, price)])
    assert line_id is not None
    return line_id


async def added(conn: Connection, wanted: Sequence[LineParts]) -> list[int | None]:
    """The ids of these lines of one account, which are added if they are new. Call inside a transaction."""
    return (await _added(conn, wanted))[1]


async def _added(conn: Connection, wanted: Sequence[LineParts]) -> tuple[list[LineParts], list[int | None]]:
    """The same, with the parts that the lines have within the account's limits."""
    tenant_id = wanted[0].tenant_id
    await conn.execute(sql.ONE_AT_A_TIME, {"tenant_id": tenant_id})
    known, allowed = await _known(conn, tenant_id), []
    for parts in wanted:
        allowed.append(bounded(parts, known))
        known.add(allowed[-1])
    await conn.execute(sql.ADD, _columns(allowed))
    return allowed, await _find(conn, allowed)


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line with its id."""

    line_id: int
    parts: LineParts


async def parts(conn: Connection, line_ids: Sequence[int]) -> list[StoredLine]:
    """These lines."""
    rows = await (await conn.execute(sql.PARTS_OF, {"line_ids": list(line_ids)})).fetchall()
    return [StoredLine(row[0], LineParts(*row[1:])) for row in rows]


async def _find(conn: Connection, wanted: Sequence[LineParts]) -> list[int | None]:
    return [row[0] for row in await (await conn.execute(sql.FIND, _columns(wanted))).fetchall()]


async def _known(conn: Connection, tenant_id: int) -> KnownLabels:
    rows = await (await conn.execute(sql.KNOWN, {"tenant_id": tenant_id})).fetchall()
    families: dict[str, set[str]] = {}
    for workflow, _, family, _ in rows:
        if family is not None:
            families.setdefault(workflow, set()).add(family)
    return KnownLabels(
        {row[0] for row in rows if row[0] is not None and row[2] is None},
        {row[1] for row in rows if row[1] is not None},
        families,
        sum(row[3] for row in rows if row[:3] == (None, None, None)),
        await _named(conn, tenant_id),
    )


async def _named(conn: Connection, tenant_id: int) -> Named:
    rows = await (await conn.execute(sql.NAMED_BY_BUDGETS, {"tenant_id": tenant_id})).fetchall()
    keys, workflows = ([value for scope, value in rows if scope == of] for of in (Scope.KEY, Scope.WORKFLOW))
    return Named(frozenset(keys), frozenset(workflows))


def _columns(wanted: Sequence[LineParts]) -> dict[str, list[object]]:
    return {field.name: [getattr(parts, field.name) for parts in wanted] for field in fields(LineParts)}
