"""Hands results on: takes markers, makes the children of their results, and writes them. A verb of the steward that leads.

A step reads and makes without a transaction, then writes in one, which also deletes the markers (`writing`). So a step may die
anywhere, and two feeders at once only waste work.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

import structlog

from app import crypto
from app.admission import quota_events
from app.admission.control import AdmissionControl
from app.admission.quotas import QuotaBusy
from app.budgets.service import BudgetsChanged
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import KeysUnavailable, PolicyUnknown, QuotaExceeded, RedactionDown, StorageError
from app.flows import counting, reads
from app.flows.reads import NOTHING
from app.flows.stages import MOST_GROUPS, BySize, OfStage, Stage
from app.pipelines import copying, grouping, ids, lifecycle, put_off, writing
from app.pipelines import feeding_sql as queries
from app.pipelines import running as pipelines
from app.pipelines.children import Slice
from app.pipelines.governing import Governor
from app.pipelines.grouping import Groups, TooManyValues
from app.pipelines.preparing import Preparer
from app.pipelines.put_off import PutOff
from app.pipelines.reading import Reader, Seqs
from app.pipelines.running import Running
from app.pipelines.waiting import Pause
from app.pipelines.writing import Changed, Prepared
from app.policy.vaults import Vaults
from app.queue import handoff
from app.queue.bodies import BatchSeal, StoredBodies
from app.queue.handoff import Marker
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.states import BatchState
from app.storage.store import Store

MOST_MARKERS, MOST_BYTES = 32, 8 * 1024 * 1024  # of one step
MOST_OF_BATCH = 4  # of these, while others wait
_GROUPED = 4  # stages by value whose groups are remembered
WAITS = (*TRANSIENT, PolicyUnknown, RedactionDown)  # then nothing can be handed on

log = structlog.get_logger("steward")

Elsewhere = Callable[[Sequence[Marker]], Awaitable[None]]


class Feeder:
    """Of one database and one process. `elsewhere`: takes the markers of batches of no pipeline; without it they are deleted."""

    def __init__(
        self, database: Database, settings: Settings, control: AdmissionControl, elsewhere: Elsewhere | None = None
    ) -> None:
        self._database, self._settings = database, settings
        self._elsewhere = elsewhere or self._forget
        self.governor = Governor(database, control)
        self._later = PutOff()
        self._groups: dict[int, Groups] = {}  # by batch
        self.handed_on: Counter[str] = Counter()  # items by outcome, since the start
        self.set_aside = 0  # markers that failed too often

    async def any_open(self) -> bool:
        """Whether there are pipelines that have not ended."""
        async with self._database.relaxed() as conn:
            row = await (await conn.execute(queries.ANY_OPEN)).fetchone()
        return bool(row and row[0])

    async def step(self) -> bool:
        """Hand the next results on. False: there is nothing to do."""
        async with self._database.relaxed() as conn:
            markers = _chosen(await handoff.look(conn))
        if not markers:
            return await self._group_ripe() or await self._copy_source()
        await self._attempt(markers)
        return True

    async def _attempt(self, markers: Sequence[Marker]) -> None:
        """Hand markers on; if that fails, one by one, so that one of them holds up no other."""
        try:
            await self._hand_on(markers)
        except (Changed, BudgetsChanged):
            return
        except Exception as error:
            if isinstance(error, WAITS):
                raise
            if len(markers) > 1:
                for marker in markers:
                    await self._attempt([marker])
            elif isinstance(error, QuotaExceeded):
                await self._pause_for_quota(markers[0].batch_id, error)
            elif _may_come(error):
                await self._postpone(markers[0], error)
            else:
                await self._note_failure(markers[0], error)

    async def _postpone(self, marker: Marker, error: Exception) -> None:
        log.warning("handoff.postponed", batch=marker.batch_id, items=len(marker.seqs), error=str(error))
        async with self._database.relaxed() as conn:
            await handoff.postpone(conn, marker, put_off.SECONDS)

    async def _note_failure(self, marker: Marker, error: Exception) -> None:
        facts = {"batch": marker.batch_id, "items": len(marker.seqs), "tries": marker.tries + 1}
        log.warning("handoff.failed", **facts, error=repr(error))
        async with self._database.relaxed() as conn:
            if not await handoff.note_failure(conn, marker):
                self.set_aside += 1
                log.error("handoff.set_aside", **facts, exc_info=error)

    async def _hand_on(self, markers: Sequence[Marker]) -> None:
        keyring = Keyring.of(self._settings)
        known = await pipelines.load(self._database, keyring, {marker.batch_id for marker in markers})
        if others := [marker for marker in markers if marker.batch_id not in known]:
            await self._elsewhere(others)
        mine = [marker for marker in markers if marker.batch_id in known]
        if halted := [each for each in mine if known[each.batch_id][0].state != BatchState.OPEN]:
            await self._rest(halted, known)
        mine = [marker for marker in mine if known[marker.batch_id][0].state == BatchState.OPEN]
        if not mine:
            return
        secret = crypto.secret_key(self._settings)
        reader = Reader(self._database, Store.of(self._settings), keyring, secret)
        rules = await self.governor.rules({running.pipeline_id: running for running, _ in known.values()}.values())
        preparer = Preparer(self._settings, rules.models)
        mine.sort(key=lambda marker: (known[marker.batch_id][0].pipeline_id, marker.batch_id, marker.run))
        prepared = []
        for _, of_one in groupby(mine, lambda marker: known[marker.batch_id][0].pipeline_id):
            group = list(of_one)
            found = Slice(known[group[0].batch_id][0], rules)
            for _, of_batch in groupby(group, attrgetter("batch_id", "run")):
                await self._make(reader, found, known[group[0].batch_id][0], list(of_batch), known)
            prepared.append(await self._prepared(found, preparer, keyring, secret))
        await writing.write(self._database, mine, prepared)
        for each in prepared:
            for counts in each.slice.counts.values():
                self.handed_on.update(
                    ran=counts.ran, passed=counts.passed, dropped=counts.dropped, refused=counts.refused
                )

    async def _make(
        self,
        reader: Reader,
        found: Slice,
        running: Running,
        markers: Sequence[Marker],
        known: Mapping[int, tuple[Running, int]],
    ) -> None:
        """What becomes of the markers of one batch and run."""
        number = known[markers[0].batch_id][1]
        seqs = [seq for marker in markers for seq in marker.seqs]
        if not markers[0].of_packs:
            children = [child for child in running.flow.children(number) if child.pack is None]
            wanted = NOTHING
            for child in children:
                wanted |= reads.of_item(running.flow, child)
            items = await reader.items(running, number, Seqs(seqs), markers[0].run, wanted)
            await asyncio.to_thread(found.hand_on, number, items)
            return
        stage = running.flow.stage(number)
        for pack in seqs:
            await self._pack(reader, found, running, stage, pack)

    async def _pack(self, reader: Reader, found: Slice, running: Running, stage: Stage, pack: int) -> None:
        flow, common = running.flow, None
        members = await self._members(reader, running, stage, pack)
        parts = await reader.items(running, stage.parent, members, 1, reads.of_part(flow, stage))
        if isinstance(stage.pack, OfStage) and parts:
            listed = Seqs([pack])
            [common] = await reader.items(running, stage.pack.stage, listed, 1, reads.of_common(stage))
        await asyncio.to_thread(found.pack, stage, pack, parts, common)

    async def _members(self, reader: Reader, running: Running, stage: Stage, pack: int) -> Seqs:
        """The numbers of the parent's items that may belong to a pack."""
        match stage.pack:
            case BySize() | OfStage():
                width = counting.width(running.flow, stage)
                return Seqs(low=pack * width, high=(pack + 1) * width)
        batch_id = running.stages[stage.number].batch_id
        if batch_id not in self._groups:
            self._remember(batch_id, await grouping.groups(reader, running, stage))
        return Seqs(self._groups[batch_id].packs[pack])

    async def _group_ripe(self) -> bool:
        """Find the packs of the stages by value whose parents have ended. False: there are none."""
        async with self._database.relaxed() as conn:
            ripe = await handoff.ripe(conn)
        later, done = self._later.now(), False
        for batch_id in ripe:
            if batch_id not in later:
                done |= await self._unless_it_fails(batch_id, self._group(batch_id))
        return done

    async def _group(self, batch_id: int) -> bool:
        keyring = Keyring.of(self._settings)
        running, number = (await pipelines.load(self._database, keyring, [batch_id]))[batch_id]
        if running.state != BatchState.OPEN:
            return False
        reader = Reader(self._database, Store.of(self._settings), keyring, crypto.secret_key(self._settings))
        stage = running.flow.stage(number)
        most = None if running.overruled else MOST_GROUPS
        try:
            found = await grouping.groups(reader, running, stage, most=most)
        except TooManyValues:
            await self._pause(running, Pause.GROUPS)
            return True
        self._remember(batch_id, found)
        await writing.group(self._database, running, stage, len(found.packs), members=found.items, parts=found.parts)
        return True

    async def _pause(self, running: Running, why: Pause) -> None:
        async with self._database.transaction() as conn:
            if await lifecycle.pause(conn, running.tenant_id, running.request_id, why):
                log.warning("pipeline.paused", pipeline=ids.format_id(running.request_id), why=str(why))

    async def _pause_for_quota(self, batch_id: int, refusal: QuotaExceeded) -> None:
        """Pause a pipeline whose next items its account may not have."""
        running, _ = (await pipelines.load(self._database, Keyring.of(self._settings), [batch_id]))[batch_id]
        with suppress(QuotaExceeded):
            async with quota_events.told(self._database, running.tenant):
                raise refusal
        await self._pause(running, Pause.QUOTA)

    async def _copy_source(self) -> bool:
        """Copy a part of a batch that is the input of a pipeline. False: there is none that can be copied."""
        found = await copying.ready(self._database, self._later.now())
        if found is None:
            return False
        await self._unless_it_fails(found[0], self._copy(*found))
        return True

    async def _copy(self, pipeline_id: int, source_id: int, low: int, readable: bool) -> bool:
        keyring = Keyring.of(self._settings)
        running, _ = (await pipelines.load(self._database, keyring, [pipeline_id]))[pipeline_id]
        reader = Reader(self._database, Store.of(self._settings), keyring, crypto.secret_key(self._settings))
        rules = await self.governor.rules([running])
        try:
            await copying.step(self._database, reader, rules, running, source_id, low, readable=readable)
        except QuotaExceeded as refusal:
            await self._pause_for_quota(pipeline_id, refusal)
        return True

    async def _unless_it_fails(self, batch_id: int, work: Awaitable[bool]) -> bool:
        """What the work says. If it fails, this batch is tried later, and others go on."""
        try:
            return await work
        except Changed:
            return False
        except WAITS:
            raise
        except Exception as error:
            self._later.add(batch_id)
            log.warning("handoff.postponed", batch=batch_id, error=repr(error), exc_info=not _may_come(error))
            return False

    def _remember(self, batch_id: int, groups: Groups) -> None:
        while len(self._groups) >= _GROUPED:
            del self._groups[next(iter(self._groups))]
        self._groups[batch_id] = groups

    async def _prepared(self, found: Slice, preparer: Preparer, keyring: Keyring, secret: bytes) -> Prepared:
        targets, look = await preparer.targets(self._database, found)
        seals, vault_seals = dict[int, BatchSeal](), dict[int, BatchSeal]()
        for number in found.made:
            stage = found.running.stages[number]
            if stage.only_vaults is not None:
                kept = vault_seals if stage.only_vaults else seals
                kept[stage.batch_id] = await StoredBodies(self._database, keyring, stage.batch_id).seal()
        return Prepared(found, targets, seals, Vaults(secret, found.running.tenant_id), vault_seals, look)

    async def _rest(self, markers: Sequence[Marker], known: Mapping[int, tuple[Running, int]]) -> None:
        """Leave markers of pipelines that are paused, or that end, until a verb resumes them."""
        ids = sorted({known[marker.batch_id][0].pipeline_id for marker in markers})
        async with self._database.relaxed() as conn, conn.transaction():
            rows = await (await conn.execute(queries.LOCK, {"pipeline_ids": ids})).fetchall()
            halted = {pipeline_id for pipeline_id, state, _ in rows if state != BatchState.OPEN}
            await handoff.rest(conn, [each for each in markers if known[each.batch_id][0].pipeline_id in halted])

    async def _forget(self, markers: Sequence[Marker]) -> None:
        """Delete the markers of batches that are gone."""
        async with self._database.relaxed() as conn:
            await handoff.take(conn, markers)


def _may_come(error: Exception) -> bool:
    """Whether what was missing may be there later: keys, objects, or the lock of a quota."""
    return (
        (isinstance(error, KeysUnavailable) and not error.gone)
        or (isinstance(error, StorageError) and not error.missing)
        or isinstance(error, QuotaBusy)
    )


def _chosen(markers: Sequence[Marker]) -> list[Marker]:
    """Those of one step. A batch with many does not hold up the others, nor does a marker that has failed."""
    alone = len({marker.batch_id for marker in markers}) == 1
    most_of_batch = MOST_MARKERS if alone else MOST_OF_BATCH
    chosen: list[Marker] = []
    size, of_batch = 0, Counter[int]()
    for marker in markers:
        if marker.tries:
            if not chosen:
                return [marker]
            continue
        size += marker.bytes
        if chosen and (size > MOST_BYTES or len(chosen) == MOST_MARKERS):
            break
        if of_batch[marker.batch_id] < most_of_batch:
            of_batch[marker.batch_id] += 1
            chosen.append(marker)
    return chosen
