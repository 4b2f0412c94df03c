"""Redacts an account's stored batch files by the rule in force now. The values of a line's placeholders are in the line, so a
new object replaces the old one as a whole.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from uuid import UUID

from psycopg.types.json import Jsonb

from app.admission.redaction import Redaction
from app.admission.stored import Search, kinds
from app.batches.intake.ndjson import LineSplitter, LineTooLong
from app.batches.intake.redacted_lines import custom_id, of_stored
from app.batches.openai.uploads import PURPOSE
from app.batches.redacting import CHANGED, NO_KEY, look_at_name
from app.db.pool import Database
from app.errors import KeysUnavailable, StorageError
from app.files import sealed_files, sql
from app.files.sealed_files import FileSeal
from app.policy import leaves
from app.policy.placeholders import TooManyValues
from app.sealing.batch_keys import NewKey
from app.sealing.frames import FrameWriter
from app.sealing.keyring import Keyring, WrappedKey
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store

FILES, PROBLEMS = "files", "errors of files"
_NO_LINES = "it is no batch file: delete it"
_UNREAD = "its object cannot be had"
_TOO_MANY = "a line has too many values"
_UPLOAD = "an upload in parts, which is not complete"
_LONGEST_LINE = 1 << 28


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is stored."""

    file_id: UUID
    purpose: str
    filename: str
    size: int
    kek: str | None
    wrapped_key: bytes | None


async def redact(database: Database, settings: Settings, tenant_id: int, redaction: Redaction, search: Search) -> None:
    """Search all files of an account, and redact them if `search` says so."""
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant_id}
        files = [_File(*row) for row in await (await conn.execute(sql.TO_SEARCH, values)).fetchall()]
        uploads = await (await conn.execute(sql.OPEN_UPLOADS, values)).fetchall()
    await _scrub_problems(database, values, redaction, search)
    for (name,) in uploads:
        look_at_name(redaction, search, name)
        search.unread(FILES, _UPLOAD)
    for file in files:
        look_at_name(redaction, search, file.filename)
        await _Stored(database, settings, tenant_id, redaction, file).redact(search)


async def _scrub_problems(database: Database, of: Mapping[str, object], redaction: Redaction, search: Search) -> None:
    """What is said of the lines of files, and of batches that were refused because of them, may quote them."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(sql.PROBLEMS, of)).fetchall()
    for owner, name, problems in rows:
        hits: Counter[str] = Counter()

        def scrubbed(text: str, _: bool, hits: Counter[str] = hits) -> str:
            found = kinds(redaction.redactor.redact(text))
            hits.update(found)
            return redaction.scrubbed(text) if found else text

        other = leaves.changed(problems, scrubbed, of_engine=False)
        if search.note(PROBLEMS, hits):
            async with database.durable() as conn:
                changed = {"id": name, "was": Jsonb(problems), "problems": Jsonb(other)}
                done = (await conn.execute(sql.SCRUB[owner], changed)).rowcount
            search.written(PROBLEMS, None if done else CHANGED)


class _Stored:
    """The search of one file."""

    def __init__(
        self, database: Database, settings: Settings, tenant_id: int, redaction: Redaction, file: _File
    ) -> None:
        self._database, self._settings, self._tenant_id = database, settings, tenant_id
        self._redaction, self._file = redaction, file
        self._size = 0  # of the content that was read

    async def redact(self, search: Search) -> None:
        try:
            hits: Counter[str] = Counter()
            async for line, of_line in self._lines():
                hits.update(of_line)
                look_at_name(self._redaction, search, custom_id(line))
            if search.note(FILES, hits, None if self._file.purpose == PURPOSE else _NO_LINES):
                await self._write()
                search.written(FILES)
            elif search.apply and self._size != self._file.size:  # a call ended before it noted the new size
                await self._resize(self._size)
        except KeysUnavailable:
            search.unread(FILES, NO_KEY)
        except (StorageError, LineTooLong):
            search.unread(FILES, _UNREAD)
        except TooManyValues:
            search.unread(FILES, _TOO_MANY)

    async def _lines(self) -> AsyncIterator[tuple[bytes, Counter[str]]]:
        """Each line as it is to be, and its values by kind."""
        splitter, self._size = LineSplitter(_LONGEST_LINE), 0
        content = sealed_files.stream(self._database, self._settings, self._tenant_id, self._file.file_id)
        async for block in content:
            self._size += len(block)
            for line in splitter.feed(block):
                yield of_stored(self._redaction, line)
        for line in splitter.close():
            yield of_stored(self._redaction, line)

    async def _write(self) -> None:
        folder = self._settings.data_dir / "spool"
        folder.mkdir(parents=True, exist_ok=True)
        frames = await self._frames()
        with NamedTemporaryFile(dir=folder) as spool:
            size = 0
            async for line, _ in self._lines():
                size += len(line) + 1
                spool.write(frames.feed(line + b"\n") if frames else line + b"\n")
            if frames:
                spool.write(frames.close())
            spool.flush()
            key = object_names.upload(self._tenant_id, self._file.file_id)
            await Store.of(self._settings).put_file(key, Path(spool.name))
        await self._resize(size)

    async def _resize(self, size: int) -> None:
        async with self._database.durable() as conn:
            values = {"tenant_id": self._tenant_id, "file_id": self._file.file_id, "bytes": size}
            there = (await conn.execute(sql.RESIZE, values)).rowcount
        if not there:  # it was deleted meanwhile
            await Store.of(self._settings).delete([object_names.upload(self._tenant_id, self._file.file_id)])

    async def _frames(self) -> FrameWriter | None:
        file = self._file
        if file.kek is None or file.wrapped_key is None:
            return None
        wrapped = WrappedKey(file.kek, file.wrapped_key)
        cipher = await Keyring.of(self._settings).open(wrapped, file.file_id.bytes)
        return FileSeal(file.file_id, NewKey(self._tenant_id, cipher, wrapped)).writer()
