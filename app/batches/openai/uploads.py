"""An uploaded file: it is spooled and its lines are checked while it arrives. Synchronous; routes run it in threads.

Checked are the rules for single lines. Whether the lines fit together is checked when a batch is created.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from app import cells
from app.admission import quota_events, quotas
from app.admission.admission import no_admission
from app.admission.redaction import Redaction
from app.batches.intake import redacted_lines
from app.batches.intake.ndjson import LineSplitter, LineTooLong
from app.batches.intake.spool import catch_disk_full, spooled
from app.batches.submit import rules_of_lines
from app.batches.validation import text_kinds
from app.batches.validation.openai_lines import Lines
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.errors import BadInput, BodyTooLarge, SensitiveFound
from app.files import sealed_files
from app.files import service as files
from app.files.sealed_files import FileSeal
from app.files.service import File
from app.queue.answer_lengths import UsualLength
from app.sentences import bare
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant

PURPOSE = "batch"
UNREAD_PURPOSES = (
    "assistants",
    "user_data",
    "vision",
    "evals",
)  # OpenAI's clients send them; such files are only stored
DEFAULT_SECONDS = 30 * 86_400.0  # lifetime of a file
_NO_BATCH_FILE = "Invalid file format for Batch API."  # OpenAI's words
_ARRAY = (b"[\n", b"[\r\n")  # of whose lines the last element's is JSON


class IncomingUpload:
    """A context manager that deletes the spool at its end. `lines` reads the file, unless its purpose is in `UNREAD_PURPOSES`.

    With `redaction` the file is rewritten line by line before it is spooled. `seal`: its spool and its object are sealed.
    """

    def __init__(
        self,
        settings: Settings,
        models: Catalogue,
        usual: UsualLength,
        redaction: Redaction | None,
        seal: FileSeal | None,
    ) -> None:
        self._settings, self._redaction = settings, redaction
        self._received = 0
        self._open = ExitStack()
        self._file = self._open.enter_context(spooled(settings.data_dir / "spool"))
        self._splitter = LineSplitter(int(settings.ndjson_line_mb * 2**20))
        self._most = int(settings.ndjson_body_mb * 2**20)
        self.seal = seal
        self._frames = seal.writer() if seal else None
        self.lines = Lines(models, rules_of_lines(models, usual), mixed=True, admission=no_admission())
        self.size = 0
        self.purpose: str | None = None  # None until it is known, which may be after the last byte
        self._too_long: LineTooLong | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def check_name(self, filename: str) -> None:
        """Raise SensitiveFound for a file name with a sensitive value."""
        if self._redaction is not None:
            self._redaction.check("the name of the file", filename)

    @property
    def path(self) -> Path:
        """The file with the content, after `close`."""
        return Path(self._file.name)

    def add(self, piece: bytes) -> None:
        """The next bytes of the file. Raises BodyTooLarge, BadInput, StorageFull."""
        self._received += len(piece)
        if self._received > self._most:
            raise too_large(self._settings)
        if self._redaction is not None:
            self._add_redacted(self._redaction, piece)
            return
        self._write(piece)
        if self.purpose in UNREAD_PURPOSES or self._too_long:
            return
        try:
            for line in self._splitter.feed(piece):
                self.lines.read(line)
        except LineTooLong as error:
            self._too_long = error
        if self.purpose is not None:
            self._check_length()

    def close(self) -> None:
        """To be called after the last byte, when the purpose is known. Raises BadInput where no line is a JSON object."""
        if self._redaction is not None:
            self._add_redacted(self._redaction, b"")
            for line in self._splitter.close():
                self._write_line(self._redaction, line)
        if self.purpose not in UNREAD_PURPOSES:
            self._check_length()
            for line in self._splitter.close():
                self.lines.read(line)
            self._check_form()
        with catch_disk_full():
            if self._frames:
                self._file.write(self._frames.close())
            self._file.flush()

    def _write(self, data: bytes) -> None:
        self.size += len(data)
        with catch_disk_full():
            self._file.write(self._frames.feed(data) if self._frames else data)

    def _add_redacted(self, redaction: Redaction, piece: bytes) -> None:
        if self.purpose in UNREAD_PURPOSES:
            raise SensitiveFound(
                f"A policy of this account redacts its files, and one with the purpose {self.purpose} cannot be redacted; "
                f"the purpose can be {PURPOSE}"
            )
        for line in self._splitter.feed(piece):
            self._write_line(redaction, line)

    def _write_line(self, redaction: Redaction, line: bytes) -> None:
        text = redacted_lines.redacted(redaction, line, self.lines.number + 1)
        self._write(text + b"\n")
        self.lines.read(text)

    def _check_length(self) -> None:
        if self._too_long:
            raise self._too_long

    def _check_form(self) -> None:
        """Raise BadInput for a file that is no lines of JSON, saying what it is."""
        if not self.lines.count:
            has = "has only empty lines" if self._received else "is empty"
            raise BadInput(f"{_NO_BATCH_FILE} The file {has}; it needs a request in each line")
        head = self._splitter.head
        if self.lines.malformed == self.lines.count or head.lstrip().startswith(_ARRAY):
            what = text_kinds.of_file(head)
            first = self.lines.problems[0]
            told = f"The file is {what}" if what else f"Line {first.line}: {bare(first.message)}"
            raise BadInput(f"{_NO_BATCH_FILE} Must be .jsonl. {told}")


def too_large(settings: Settings) -> BodyTooLarge:
    """The error for a file above the limit. It begins with OpenAI's message."""
    return BodyTooLarge(
        f"File is too large. It may have at most {settings.ndjson_body_mb:g} MB; split it, or ask the operator to raise "
        "SLACKWATER_NDJSON_BODY_MB",
        status=400,
    )


async def store(
    database: Database,
    settings: Settings,
    tenant: Tenant,
    upload: IncomingUpload,
    *,
    filename: str,
    expires_seconds: float,
    counted: bool = False,
) -> File:
    """Store an upload as a file, after `close`. `counted`: as parts, its bytes count already. Raises QuotaExceeded."""

    async def check(conn: Connection) -> None:
        await quotas.check(conn, tenant, quotas.Demand(stored_bytes=0 if counted else upload.size))

    upload.check_name(filename)
    lines, unread = upload.lines, upload.purpose in UNREAD_PURPOSES
    async with quota_events.told(database, tenant):
        return await files.keep(
            database,
            Store.of(settings),
            upload.path,
            file_id=upload.seal.owner if upload.seal else cells.new_timed_id(),
            tenant_id=tenant.tenant_id,
            purpose=upload.purpose or PURPOSE,
            filename=filename,
            size=upload.size,
            expires_seconds=expires_seconds,
            lines=0 if unread else lines.count,
            problems=[] if unread else [asdict(problem) for problem in lines.all_problems],
            demand=None if unread else {name: asdict(demand) for name, demand in lines.demand.items()},
            check=check,
            seal=upload.seal,
        )


async def from_requests(
    database: Database,
    settings: Settings,
    models: Catalogue,
    tenant: Tenant,
    requests: Sequence[Any],
    endpoint: str,
    usual: UsualLength,
    redaction: Redaction | None,
    rule: str | None,
) -> File:
    """A file with the requests in the body of a batch. The defaults are the method POST and the batch's endpoint.

    `rule`: of the policy, which asks for its encryption.
    """

    def add_all(upload: IncomingUpload) -> None:
        for given in requests:
            whole = {"method": "POST", "url": endpoint, **given} if isinstance(given, Mapping) else given
            upload.add(orjson.dumps(whole) + b"\n")
        upload.close()

    seal = await sealed_files.new_seal(database, settings, tenant.tenant_id, rule)
    with IncomingUpload(settings, models, usual, redaction, seal) as upload:
        upload.purpose = PURPOSE
        await asyncio.to_thread(add_all, upload)
        return await store(
            database, settings, tenant, upload, filename="requests.jsonl", expires_seconds=DEFAULT_SECONDS
        )
