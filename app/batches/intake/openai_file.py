"""A batch file on its way into the queue. What is wrong with its lines is collected, not raised."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import orjson

from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation.openai_lines import BadLine, BatchLine, LineProblem, Lines
from app.batches.validation.text_generation import ItemFacts
from app.engines.requests import UNFIT


class FileIntake(Spool):
    """The lines of one file, as rows of the bodies that they ask for.

    `endpoint`: what most lines ask for; the rows of others have their own. A line that fails alone becomes an item all the
    same, which will fail for what is wrong with it; `lenient`: so does any other line that cannot be run.
    """

    def __init__(
        self, batch_id: int, lines: Lines, endpoint: str, *, lenient: bool = False, **options: Unpack[SpoolOptions]
    ) -> None:
        super().__init__(batch_id, "", **options)
        self.lines = lines
        self._endpoint = endpoint
        self._lenient = lenient

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        encoded = []
        for text in lines:
            match self.lines.read(text):
                case BatchLine() as line:
                    encoded.append(self._fit(line))
                case BadLine() as line if self._lenient or line.problem.alone:
                    encoded.append(self._unfit(line))
        self._write(b"".join(encoded))

    def _fit(self, line: BatchLine) -> bytes:
        endpoint = None if line.route == self._endpoint else line.route
        return self._row(line.facts, line.custom_id, orjson.dumps(line.body), model=line.model, endpoint=endpoint)

    def _unfit(self, line: BadLine) -> bytes:
        facts = ItemFacts(line.custom_id, 1, wants_json=False, affinity=None, prefix="", answer_tokens=0, most_tokens=0)
        return self._row(facts, line.custom_id, orjson.dumps(_as_told(line.problem).view()), endpoint=UNFIT)


def _as_told(problem: LineProblem) -> LineProblem:
    """Of a line that fails alone, its body is what was asked, and its fields are called as there."""
    if not problem.alone or problem.param is None:
        return problem
    return replace(
        problem, message=problem.message.replace("'body.", "'", 1), param=problem.param.removeprefix("body.")
    )
