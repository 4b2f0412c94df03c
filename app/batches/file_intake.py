"""A batch file on its way into the queue. What is wrong with its lines is collected, not raised."""

from collections.abc import Sequence
from typing import Unpack

import orjson

from app.batches.lines import Lines
from app.batches.spool import Spool, SpoolOptions


class FileIntake(Spool):
    """The lines of one file, as rows of the bodies that they ask for."""

    def __init__(self, batch_id: int, lines: Lines, **options: Unpack[SpoolOptions]) -> None:
        super().__init__(batch_id, "", **options)
        self.lines = lines

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        encoded = []
        for text in lines:
            line = self.lines.read(text)
            if line is not None:
                encoded.append(self._row(line.facts, line.custom_id, orjson.dumps(line.body)))
        self._write(b"".join(encoded))
