"""An upload on its way in: spooled, and its lines checked, while it arrives. Synchronous; routes run it in threads.

What is checked is what any batch of it would complain of; whether its lines fit together, the batch knows.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import orjson

from app.batches.intake.ndjson import LineSplitter, LineTooLong
from app.batches.intake.spool import room, spooled
from app.batches.submit import rules_of_lines
from app.batches.validation.openai_lines import Lines
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.errors import BadInput, BodyTooLarge
from app.files import service as files
from app.files.service import File
from app.queue.answer_lengths import Usual
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant

PURPOSE = "batch"
PLAIN = ("assistants", "user_data", "vision", "evals")  # that OpenAI's clients send, and that nothing here reads
USUAL_SECONDS = 30 * 86_400.0  # that a file is kept
_NAME_LENGTH = 255


class IncomingUpload:
    """A context manager: leaving it deletes the spool. `lines` has read all that came, unless the purpose is a plain file's."""

    def __init__(self, settings: Settings, models: Catalogue, usual: Usual) -> None:
        self._open = ExitStack()
        self._file = self._open.enter_context(spooled(settings.data_dir / "spool"))
        self._splitter = LineSplitter(int(settings.ndjson_line_mb * 2**20))
        self._most = int(settings.ndjson_body_mb * 2**20)
        self.lines = Lines(models, rules_of_lines(models, usual), mixed=True)
        self.size = 0
        self.purpose: str | None = None  # until it is known, which may be after the last byte
        self._too_long: LineTooLong | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    @property
    def path(self) -> Path:
        """Where the content is, once it is closed."""
        return Path(self._file.name)

    def add(self, piece: bytes) -> None:
        """The next bytes of the file. Raises BodyTooLarge, BadInput, StorageFull."""
        self.size += len(piece)
        if self.size > self._most:
            raise too_large()
        with room():
            self._file.write(piece)
        if self.purpose in PLAIN or self._too_long:
            return
        try:
            for line in self._splitter.feed(piece):
                self.lines.read(line)
        except LineTooLong as error:
            self._too_long = error
        if self.purpose is not None:
            self._check_length()

    def close(self) -> None:
        """After the last byte, once the purpose is known. Raises BadInput for what is no batch file at all."""
        if self.purpose not in PLAIN:
            self._check_length()
            for line in self._splitter.close():
                self.lines.read(line)
            if self.lines.malformed == self.lines.count:
                raise BadInput("Invalid file format for Batch API. Must be .jsonl")
        with room():
            self._file.flush()

    def _check_length(self) -> None:
        if self._too_long:
            raise BadInput(f"{self._too_long}; split the request or raise SLACKWATER_NDJSON_LINE_MB")


def too_large() -> BodyTooLarge:
    """What is said of a file above the cap, in OpenAI's words."""
    return BodyTooLarge("File is too large.", status=400)


async def kept(
    database: Database,
    settings: Settings,
    tenant: Tenant,
    upload: IncomingUpload,
    *,
    filename: str,
    expires_seconds: float,
) -> File:
    """The file that an upload has become, once it is closed."""
    lines, plain = upload.lines, upload.purpose in PLAIN
    return await files.keep(
        database,
        Store.of(settings),
        upload.path,
        file_id=uuid4(),
        tenant_id=tenant.tenant_id,
        purpose=upload.purpose or PURPOSE,
        filename=filename.replace("\0", "")[:_NAME_LENGTH],
        size=upload.size,
        expires_seconds=expires_seconds,
        lines=0 if plain else lines.count,
        problems=[] if plain else [asdict(problem) for problem in lines.told],
        demand=None if plain else {name: asdict(demand) for name, demand in lines.demand.items()},
    )


async def from_requests(
    database: Database,
    settings: Settings,
    models: Catalogue,
    tenant: Tenant,
    requests: Sequence[Any],
    endpoint: str,
    usual: Usual,
) -> File:
    """A file of requests that came with the batch itself; what they leave out is POST, and the batch's endpoint."""

    def add_all(upload: IncomingUpload) -> None:
        for given in requests:
            whole = {"method": "POST", "url": endpoint, **given} if isinstance(given, Mapping) else given
            upload.add(orjson.dumps(whole) + b"\n")
        upload.close()

    with IncomingUpload(settings, models, usual) as upload:
        upload.purpose = PURPOSE
        await asyncio.to_thread(add_all, upload)
        return await kept(database, settings, tenant, upload, filename="requests.jsonl", expires_seconds=USUAL_SECONDS)
