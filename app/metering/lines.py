"""Lines: one row for each combination of account, key, labels, model, kind and price, whose id batches and usage carry.

A line has the price of its model at the time of the submit, so what is queued keeps its price.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from app import clock
from app.db.pool import Connection, Database
from app.engines.catalogue import Price
from app.metering import sql
from app.metering.money import TokenPrice
from app.metering.spend_labels import NO_SPEND_LABELS, SpendLabels

OTHER = "other"
SYNC = "sync"  # the kind of synchronous requests
DOOR = "door"  # the kind of requests through an engine's door
UNQUEUED = (SYNC, DOOR)  # kinds whose usage no batch has counted
MIXED = "mixed"  # the family or the endpoint of a chunk that has several
# Of a key; families: of a workflow. An account has KEYS times as many, so that none of its keys uses them all up.
MOST_LINES, MOST_WORKFLOWS, MOST_TASKS, MOST_VARIANTS, MOST_FAMILIES = 10_000, 50, 20, 20, 200
KEYS = 2
TRUST_SECONDS = 3600.0
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


@dataclass(slots=True)
class Labels:
    """The labels that lines have, of an account or of one key. `families`: by workflow. `lines`: their number."""

    workflows: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    variants: set[str] = field(default_factory=set)
    families: dict[str, set[str]] = field(default_factory=dict)
    lines: int = 0

    def add(self, parts: LineParts) -> None:
        """Count one more line."""
        self.workflows.add(parts.workflow)
        self.tasks.add(parts.task)
        self.variants.add(parts.variant)
        self.families.setdefault(parts.workflow, set()).add(parts.family)
        self.lines += 1


@dataclass(slots=True)
class KnownLabels:
    """The labels of an account, and of its keys. `named`: workflows that its budgets name; they are always kept, so that no work
    escapes its budget.
    """

    account: Labels = field(default_factory=Labels)
    keys: defaultdict[str, Labels] = field(default_factory=lambda: defaultdict(Labels))
    named: frozenset[str] = frozenset()

    def add(self, parts: LineParts) -> None:
        """Count one more line."""
        self.account.add(parts)
        self.keys[parts.key_id].add(parts)


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


def without_labels(parts: LineParts, workflow: str = OTHER) -> LineParts:
    """The parts of the line for whatever has too many labels. Its key is kept: how many there are is up to their owner."""
    return replace(parts, workflow=workflow, task=OTHER, variant=OTHER, family=OTHER)


def bounded(parts: LineParts, known: KnownLabels) -> LineParts:
    """The parts within the limits of the key, and of the account: a label beyond them is `other`. Pure."""
    key, account = known.keys[parts.key_id], known.account
    workflow = parts.workflow
    if workflow not in known.named:
        workflow = _within(workflow, key.workflows, account.workflows, MOST_WORKFLOWS)
    if key.lines >= MOST_LINES or account.lines >= KEYS * MOST_LINES:
        return without_labels(parts, workflow)
    of_key, of_account = (labels.families.get(workflow, set()) for labels in (key, account))
    return replace(
        parts,
        workflow=workflow,
        task=_within(parts.task, key.tasks, account.tasks, MOST_TASKS),
        variant=_within(parts.variant, key.variants, account.variants, MOST_VARIANTS),
        family=_within(parts.family, of_key, of_account, MOST_FAMILIES),
    )


def _within(label: str, of_key: Collection[str], of_account: Collection[str], most: int) -> str:
    if label in of_key:
        return label
    room = len(of_key) < most and (label in of_account or len(of_account) < KEYS * most)
    return label if room else OTHER


class Lines:
    """The ids of lines, cached in this process for at most TRUST_SECONDS. A line never becomes another. It is removed with its
    account, or a day after it was last looked up if nothing uses it.

    What has too many labels shares a line, until a budget names its workflow.
    """

    def __init__(self) -> None:
        self._ids: dict[LineParts, int] = {}
        self._shared: dict[LineParts, LineParts] = {}  # the parts of the line that it has instead
        self._since = clock.monotonic()

    async def ids(self, database: Database, wanted: Sequence[LineParts]) -> list[int]:
        """The ids of these lines of one account, which are added if they are new."""
        if len(self._ids) > _CACHED or clock.monotonic() - self._since > TRUST_SECONDS:
            self._ids.clear()
            self._shared.clear()
            self._since = clock.monotonic()
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
            self._ids |= new
            self._shared |= {parts: own for parts, own in zip(missing, allowed, strict=True) if parts != own}
            known |= new
        return [known[parts] for parts in wanted]

    async def _forget_named(self, database: Database, shared: Mapping[LineParts, LineParts]) -> None:
        """Forget the ids of those whose workflow a budget names now: they get a line of their own."""
        async with database.relaxed() as conn:
            named = await _named(conn, next(iter(shared)).tenant_id)
        for parts, own in shared.items():
            if own.workflow != parts.workflow and parts.workflow in named:
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
    await conn.execute(sql.ONE_AT_A_TIME, {"tenant_id": wanted[0].tenant_id})
    known, allowed = await _known(conn, wanted), []
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


async def remove_unused(conn: Connection) -> int:
    """Remove lines that nothing has used, nor can use, and that nobody has looked up for a day. Returns their number."""
    removed = (await conn.execute(sql.REMOVE_UNUSED)).rowcount
    await conn.execute(sql.MARK_UNUSED)
    return removed


async def _find(conn: Connection, wanted: Sequence[LineParts]) -> list[int | None]:
    rows = await (await conn.execute(sql.FIND, _columns(wanted))).fetchall()
    if kept := [line_id for line_id, unused in rows if unused]:
        await conn.execute(sql.KEEP, {"line_ids": kept})
    return [line_id for line_id, _ in rows]


async def _known(conn: Connection, wanted: Sequence[LineParts]) -> KnownLabels:
    tenant_id, key_ids = wanted[0].tenant_id, list({parts.key_id for parts in wanted})
    rows = await (await conn.execute(sql.KNOWN, {"tenant_id": tenant_id, "key_ids": key_ids})).fetchall()
    known = KnownLabels(named=await _named(conn, tenant_id))
    for key_id, workflow, task, variant, family, count in rows:
        of = known.account if key_id is None else known.keys[key_id]
        if family is not None:
            of.families.setdefault(workflow, set()).add(family)
        elif workflow is not None:
            of.workflows.add(workflow)
        elif task is not None:
            of.tasks.add(task)
        elif variant is not None:
            of.variants.add(variant)
        else:
            of.lines = count
    return known


async def _named(conn: Connection, tenant_id: int) -> frozenset[str]:
    rows = await (await conn.execute(sql.NAMED_BY_BUDGETS, {"tenant_id": tenant_id})).fetchall()
    return frozenset(value for scope, value in rows if scope == "workflow")


def _columns(wanted: Sequence[LineParts]) -> dict[str, list[object]]:
    return {field.name: [getattr(parts, field.name) for parts in wanted] for field in fields(LineParts)}
