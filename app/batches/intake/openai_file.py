"""The lines of a batch file, read for the queue. Their problems are collected, not raised."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import orjson

from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation.openai_lines import BadLine, BatchLine, LineProblem, Lines
from app.batches.validation.text_generation import ItemFacts
from app.engines.requests import UNFIT


class FileIntake(Spool):
    """The lines of one file, as rows with their bodies.

    `endpoint`: the route of most lines; the rows of other lines have their own. A line that fails alone becomes an item that
    fails with its problem. With `lenient` every invalid line does.
    """

    def __init__(
        self, batch_id: int, lines: Lines, endpoint: str, *, lenient: bool = False, **options: Unpack[SpoolOptions]
    ) -> None:
        super().__init__(batch_id, "", **options)
        self.lines = lines
        self._endpoint = endpoint
        self._lenient = lenient

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        for text in lines:
            match self.lines.read(text):
                case BatchLine() as line:
                    self._add_line(line)
                case BadLine() as line if self._lenient or line.problem.alone:
                    self._add_bad(line)

    def _add_line(self, line: BatchLine) -> None:
        endpoint = None if line.route == self._endpoint else line.route
        asked = None if line.asked is None else orjson.dumps(line.asked)
        body, values = orjson.dumps(line.body), line.values
        self._add(line.facts, line.custom_id, body, model=line.model, endpoint=endpoint, asked=asked, values=values)

    def _add_bad(self, line: BadLine) -> None:
        facts = ItemFacts(line.custom_id, 1, wants_json=False, affinity=None, prefix="", answer_tokens=0, most_tokens=0)
        self._add(facts, line.custom_id, orjson.dumps(_without_body_prefix(line.problem).view()), endpoint=UNFIT)


def _without_body_prefix(problem: LineProblem) -> LineProblem:
    """The problem of a line that fails alone, with field names relative to its body, as in the answer to a single request."""
    if not problem.alone or problem.param is None:
        return problem
    return replace(
        problem, message=problem.message.replace("'body.", "'", 1), param=problem.param.removeprefix("body.")
    )
