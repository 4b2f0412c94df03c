"""An upload on its way in: spooled, and its lines checked, while it arrives. Synchronous; routes run it in threads."""

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from app.batches.items import ItemRules
from app.batches.lines import Lines
from app.batches.ndjson import LineSplitter, LineTooLong
from app.batches.spool import room
from app.engines.catalogue import Catalogue
from app.errors import BadInput, BodyTooLarge
from app.settings import Settings


class Upload:
    """A context manager: leaving it deletes the spool. `lines` has read all that came."""

    def __init__(self, settings: Settings, models: Catalogue, rules: Mapping[str, ItemRules]) -> None:
        folder = settings.data_dir / "spool"
        with room():
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.NamedTemporaryFile(dir=folder)  # noqa: SIM115
        self._splitter = LineSplitter(int(settings.ndjson_line_mb * 2**20))
        self._most = int(settings.ndjson_body_mb * 2**20)
        self.lines = Lines(models, rules)
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):
            self._file.close()

    @property
    def path(self) -> Path:
        """Where the content is, once it is closed."""
        return Path(self._file.name)

    def add(self, piece: bytes) -> None:
        """The next bytes of the file. Raises BodyTooLarge, BadInput, StorageFull."""
        self.size += len(piece)
        if self.size > self._most:
            raise BodyTooLarge("File is too large.", status=400)
        with room():
            self._file.write(piece)
        try:
            for line in self._splitter.feed(piece):
                self.lines.read(line)
        except LineTooLong as error:
            raise BadInput(f"{error}; split the request or raise SLACKWATER_NDJSON_LINE_MB") from None

    def close(self) -> None:
        """After the last byte. Raises BadInput for what is no batch file at all."""
        for line in self._splitter.close():
            self.lines.read(line)
        wrong = [problem.code for problem in self.lines.problems]
        if not self.lines.count or (len(wrong) == self.lines.count and set(wrong) == {"invalid_json_line"}):
            raise BadInput("Invalid file format for Batch API. Must be .jsonl")
        with room():
            self._file.flush()
