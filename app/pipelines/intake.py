"""The lines of a pipeline's input while they arrive, spooled as rows of its stage 0: objects of any JSON.

A line may name itself with `custom_id`; else its number does. The line as templates read it has that name.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import orjson

from app.admission.admission import Admission
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation import strict_json
from app.batches.validation.openai_lines import VAULT, custom_id_in
from app.batches.validation.text_generation import ItemFacts
from app.errors import BadInput, SensitiveFound
from app.flows.stages import MOST_ITEMS
from app.policy import vaults
from app.policy.vaults import NO_VALUES

_NAME = "custom_id"


class BadLine(Exception):
    """What is wrong with a line."""


class LineNames:
    """The names of an input's lines: their own, else their numbers."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def of(self, line: Mapping[str, Any]) -> str:
        """The name of the next line. Raises BadLine."""
        name = str(len(self._seen)) if line.get(_NAME) is None else custom_id_in(line)
        if name is None:
            raise BadLine("custom_id must be a string of 1 to 512 characters")
        if name in self._seen:
            raise BadLine(f"the custom_id {name[:60]!r} is used by an earlier line; give every line its own")
        self._seen.add(name)
        return name


def named(item: Any, names: LineNames) -> dict[str, Any]:
    """The next line as templates read it. Raises BadLine."""
    line = _bare(item)
    return line | {_NAME: names.of(line)}


def _bare(item: Any) -> dict[str, Any]:
    """The line without the vault from its upload. Raises BadLine."""
    if not isinstance(item, dict):
        raise BadLine("must be a JSON object")
    return {key: value for key, value in item.items() if key != VAULT}


def bad(admission: Admission, place: str, where: str, problem: str) -> BadInput:
    """The error of a line, without sensitive values."""
    message = f"{where}: {problem}"
    redaction = admission.redaction
    return BadInput(message if redaction is None else redaction.scrubbed(message), param=place)


def too_many(place: str, most: int) -> BadInput:
    """The error of an input of more lines. `place`: of the field that names them."""
    message = f"{place}: has more than {most:,} lines, which is the most; make several pipelines, or set limit"
    return BadInput(message, param=place)


class InputIntake(Spool):
    """The lines of an input. `most`: lines that are used; None: all. `place`: of the field in the request that names them."""

    def __init__(
        self, batch_id: int, admission: Admission, most: int | None, place: str, **options: Unpack[SpoolOptions]
    ) -> None:
        options["max_items"] = min(options["max_items"], MOST_ITEMS)
        super().__init__(batch_id, "", **options)
        self._admission, self._most, self._place = admission, most, place
        self._names = LineNames()
        self._number = 0

    @property
    def full(self) -> bool:
        """Whether further lines are not used."""
        return self._most is not None and len(self.est_tokens) >= self._most

    def add_items(self, items: Sequence[Any]) -> None:
        """Add the lines of a JSON body that strict_json has read. Raises BadInput, SensitiveFound."""
        for number, item in enumerate(items):
            if not self.full:
                self._add_line(item, None, f"{self._place}[{number}]")

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        for text in lines:
            self._number += 1
            if not text.strip() or self.full:
                continue
            where = f"{self._place}: line {self._number}"
            try:
                item = strict_json.loads(text)
            except strict_json.JsonError as error:
                raise self._bad(where, f"{error}") from None
            self._add_line(item, item.get(VAULT) if isinstance(item, dict) else None, where)

    def _add_line(self, item: Any, sealed: Any, where: str) -> None:
        try:
            item, values = self._redacted(_bare(item), sealed, where)
            name = self._names.of(item)
        except BadLine as error:
            raise self._bad(where, f"{error}") from None
        facts = ItemFacts(name, 0, wants_json=False, affinity=None, prefix="", answer_tokens=0, most_tokens=0)
        self._add(facts, name, orjson.dumps(item | {_NAME: name}), values=values)

    def _redacted(self, item: dict[str, Any], sealed: Any, where: str) -> tuple[dict[str, Any], Mapping[str, str]]:
        """The line as it may be stored, and what its placeholders stand for. `sealed`: of those from its upload."""
        values = NO_VALUES
        if isinstance(sealed, str) and self._admission.vaults is not None:
            try:
                values = self._admission.vaults.opened(base64.b64decode(sealed), vaults.OF_FILE)
            except ValueError:  # the caller's own field
                values = NO_VALUES
        redaction = self._admission.redaction
        if redaction is None:
            return item, values
        try:
            redaction.check(_NAME, str(item.get(_NAME, "")))
            found = redaction.redact(item, values, of_engine=False)
        except SensitiveFound as refusal:
            refusal.message = f"{where}: {refusal.message}"
            raise
        return found.item, found.values or NO_VALUES

    def _too_many(self, most: int) -> BadInput:
        return too_many(self._place, most)

    def _bad(self, where: str, problem: str) -> BadInput:
        return bad(self._admission, self._place, where, problem)
