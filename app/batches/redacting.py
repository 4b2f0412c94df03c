"""Redacts what is stored of an account's batches by the rule in force now: requests, results, and events of responses.

An item has one mapping of placeholders, so all of it is written in one transaction, and only as it was read: what changed
meanwhile, or is with a worker, stays for the next call. A large body moves from the object store into its row, where it changes
together with its placeholders.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

from app.admission.redaction import Redaction
from app.admission.stored import Search, kinds, without_tokens
from app.db.pool import Database
from app.errors import KeysUnavailable, NotFound, StorageError
from app.files import service as files
from app.policy import leaves, vaults
from app.policy.placeholders import TooManyValues
from app.policy.redaction import Redacting
from app.policy.vaults import NO_VALUES
from app.queue import rewriting
from app.queue.bodies import StoredBodies, new_vault_seal
from app.queue.rewriting import Changed, StoredItem, StoredResult
from app.sealing import batch_keys
from app.sealing.keyring import Keyring, has_keys
from app.settings import Settings
from app.storage import late_removal
from app.storage.store import Store

ITEMS, NAMES = "items of batches", "names and labels"
CANNOT_CHANGE = "a name, label or definition cannot become another one: delete what has it"
CHANGED = "it changed meanwhile: call again"
NO_KEY = "its key, or the values of its placeholders, cannot be had"
TURN_RUNS = "a turn of its conversation runs or waits: call again once it has ended"
_RUNS = "a worker has it: call again once it has ended"
_NO_OBJECT = "its object cannot be had"
_TOO_MANY = "it has too many values"
_PAGE = 100
_Cell = tuple[dict[str, Any], str]  # a field of an object


@dataclass(slots=True)
class _NewItem:
    """What an item is to be. None: as it is. `values`: of its placeholders, where there are new ones. `hits`: by kind."""

    hits: Counter[str] = field(default_factory=Counter)
    body: bytes | None = None
    results: list[tuple[StoredResult, bytes]] = field(default_factory=list)
    events: list[tuple[int, bytes, bytes]] = field(default_factory=list)  # number, as it was, as it is to be
    values: dict[str, str] | None = None


async def redact(
    database: Database,
    settings: Settings,
    tenant_id: int,
    redaction: Redaction,
    search: Search,
    of_turns: Collection[int],
) -> None:
    """Search all batches of an account that have contents, and redact them if `search` says so. `of_turns`: those of background
    turns that have not ended, whose items are written once more.
    """
    after = 0
    while found := await rewriting.batches(database, tenant_id, after, _PAGE):
        for batch_id, labels in found:
            look_at_name(redaction, search, labels)
            with suppress(NotFound):  # retention has dropped its day
                turn = batch_id in of_turns
                await _Batch(database, settings, tenant_id, redaction, search, batch_id, of_turn=turn).redact()
        after = found[-1][0]


def look_at_name(redaction: Redaction, search: Search, text: str | None) -> None:
    """Search a text that names or labels something."""
    if text:
        search.note(NAMES, kinds(redaction.redactor.redact(text)), CANNOT_CHANGE)


class _Batch:
    """The search of one batch."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        tenant_id: int,
        redaction: Redaction,
        search: Search,
        batch_id: int,
        *,
        of_turn: bool,
    ) -> None:
        self._database, self._settings, self._tenant_id = database, settings, tenant_id
        self._redaction, self._search, self._batch_id, self._of_turn = redaction, search, batch_id, of_turn
        self._keyring, self._store = Keyring.of(settings), Store.of(settings)
        self._bodies = StoredBodies(database, self._keyring, batch_id)

    async def redact(self) -> None:
        after = 0
        while items := await rewriting.items(self._database, self._batch_id, after, _PAGE):
            after = items[-1].seq + 1
            results: dict[int, list[StoredResult]] = defaultdict(list)
            for result in await rewriting.results(self._database, self._batch_id, items[0].seq, items[-1].seq):
                results[result.seq].append(result)
            for item in items:
                look_at_name(self._redaction, self._search, item.names)
                await self._item(item, results[item.seq])

    async def _item(self, item: StoredItem, results: Sequence[StoredResult]) -> None:
        try:
            found = await self._rewritten(item, results)
        except KeysUnavailable:
            self._search.unread(ITEMS, NO_KEY)
        except StorageError:
            self._search.unread(ITEMS, _NO_OBJECT)
        except TooManyValues:
            self._search.unread(ITEMS, _TOO_MANY)
        else:
            left = TURN_RUNS if self._of_turn else _RUNS if item.leased else None
            if self._search.note(ITEMS, found.hits, left):
                self._search.written(ITEMS, await self._write(item, found))

    async def _rewritten(self, item: StoredItem, results: Sequence[StoredResult]) -> _NewItem:
        """The item without its values."""
        redacting = self._redaction.redactor.over(await self._values(item))
        known = len(redacting.values)
        found = _NewItem()
        body = await self._bodies.payload(item.seq, await self._whole(item.body, stored=item.stored))
        if (other := self._without(redacting, found, body, of_engine=True)) is not None:
            found.body = await self._bodies.sealed_payload(item.seq, other)
        for each in results:
            body = await self._whole(each.body, stored=each.stored)
            body = await self._bodies.result(each.seq, each.run, body, ok=each.ok)
            if (other := self._without(redacting, found, body)) is not None:
                found.results.append((each, await self._bodies.sealed_result(each.seq, each.run, other)))
        if item.seq == 0:
            await self._events(redacting, found)
        if len(redacting.values) > known:
            found.values = dict(redacting.values)
        return found

    async def _values(self, item: StoredItem) -> dict[str, str]:
        if item.vault is None:
            return {}
        vault = await self._bodies.vault(item.seq, item.vault)
        values = self._redaction.vaults.opened(vault, vaults.of_item(self._batch_id, item.seq))
        if values is NO_VALUES:
            raise KeysUnavailable(NO_KEY)
        return dict(values)

    async def _whole(self, body: bytes, *, stored: bool) -> bytes:
        return await self._store.get(body.decode()) if stored else body

    def _without(self, redacting: Redacting, found: _NewItem, body: bytes, *, of_engine: bool = False) -> bytes | None:
        """A body without its values. None: it stays."""
        item = orjson.loads(body)
        redacted = redacting.redact(item, of_engine=of_engine)
        if hits := kinds(redacted):
            found.hits.update(hits)
            return orjson.dumps(redacted.item if of_engine else without_tokens(redacted.item))
        return None if redacted.item is item else orjson.dumps(redacted.item)

    async def _events(self, redacting: Redacting, found: _NewItem) -> None:
        """The events of a stream, in which a value may begin in one and end in another: its texts are searched as wholes."""
        rows = await rewriting.events(self._database, self._batch_id)
        lists = [orjson.loads(await self._bodies.events(body)) for _, body in rows]
        hits, whole = Counter[str](), dict[str, str]()  # by what stands for a new text while the rest is searched
        for kind, cells in _texts(event for each in lists for event in each):
            redacted = redacting.redact({kind: "".join(cell[name] for cell, name in cells)}, of_engine=False)
            if of_text := kinds(redacted):
                hits.update(of_text)
                for cell, name in cells:
                    cell[name] = ""
                cell, name = cells[0]
                cell[name] = f"\0{len(whole)}"
                whole[cell[name]] = redacted.item[kind]
        others = [redacting.redact(each, of_engine=False) for each in lists]
        for other in others:
            hits.update(kinds(other))
        for (number, was), each, other in zip(rows, lists, others, strict=True):
            if hits or other.item is not each:
                events = without_tokens(other.item) if hits else other.item
                events = leaves.changed(events, lambda text, _: whole.get(text, text), of_engine=False)
                found.events.append((number, was, await self._bodies.sealed_events(orjson.dumps(events))))
        found.hits.update(hits)

    async def _write(self, item: StoredItem, found: _NewItem) -> str | None:
        """Write what was found. Returns why it was left; None: it was not."""
        try:
            new = rewriting.NewItem(found.body, await self._vault(item, found), found.results, found.events)
            async with self._database.transaction() as conn:
                moved = await rewriting.write(conn, self._batch_id, item, new)
                await files.forget_size(conn, self._batch_id)
                await late_removal.plan(conn, moved)
        except KeysUnavailable:
            return NO_KEY
        except Changed:
            return CHANGED
        with suppress(StorageError):  # a maintenance worker removes what is left
            await self._store.delete(moved)
        return None

    async def _vault(self, item: StoredItem, found: _NewItem) -> bytes | None:
        if found.values is None:
            return item.vault
        await self._make_key()
        place = vaults.of_item(self._batch_id, item.seq)
        return await self._bodies.sealed_vault(item.seq, self._redaction.vaults.sealed(found.values, place))

    async def _make_key(self) -> None:
        """Make the data key of vaults, if this installation has such keys and the batch has none."""
        if not has_keys(self._settings):
            return
        async with self._database.relaxed() as conn:
            if await batch_keys.read(conn, self._batch_id) is not None:
                return
        _, key = new_vault_seal(self._batch_id)
        wrapped = await batch_keys.wrap_for_vaults(self._database, self._keyring, self._tenant_id, self._batch_id, key)
        with suppress(psycopg.errors.UniqueViolation):  # another call was first
            async with self._database.transaction() as conn:
                await batch_keys.add(conn, self._batch_id, wrapped)


def _texts(events: Iterable[dict[str, Any]]) -> Iterable[tuple[str, list[_Cell]]]:
    """The texts of a stream, each as the places of its pieces, in order; `arguments` are those of calls, in JSON."""
    found: dict[tuple[object, ...], list[_Cell]] = defaultdict(list)
    for event in events:
        if isinstance(event.get("delta"), str):  # of the Responses API
            kind = "arguments" if "arguments" in event["type"] else "text"
            of = (event.get(name) for name in ("type", "item_id", "output_index", "content_index"))
            found[kind, *of].append((event, "delta"))
        for choice in event.get("choices") or ():
            delta, of_choice = choice.get("delta") or {}, choice.get("index")
            for cell, name in ((delta, "content"), (delta, "reasoning_content"), (choice, "text")):
                if isinstance(cell.get(name), str):
                    found["text", name, of_choice].append((cell, name))
            for call in delta.get("tool_calls") or ():
                if isinstance((call.get("function") or {}).get("arguments"), str):
                    found["arguments", of_choice, call.get("index")].append((call["function"], "arguments"))
    return ((str(of[0]), cells) for of, cells in found.items())
