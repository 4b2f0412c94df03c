"""The items of a submit to Workers AI's routes, checked while they arrive. The first invalid one refuses the submit."""

from collections.abc import Sequence
from typing import Any, Unpack

import orjson

from app.batches.intake.prompt_length import MOST_COUNTED, LongItem, may_not_fit
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation import strict_json
from app.batches.validation.text_generation import Examine, ItemError, ItemRules
from app.errors import BadInput


class ItemIntake(Spool):
    """The items of one model, from a JSON body or from NDJSON."""

    def __init__(
        self,
        batch_id: int,
        model: str,
        rules: ItemRules,
        examine: Examine,
        **options: Unpack[SpoolOptions],
    ) -> None:
        super().__init__(batch_id, model, **options)
        self._rules = rules
        self._examine = examine
        self._line_number = 0
        self.long_items: list[LongItem] = []  # a few of the items that may be too long

    def add_items(self, items: Sequence[Any]) -> None:
        """Add the items of a JSON body that strict_json has read. Raises BadInput naming the item and its field."""
        for item in items:
            self._write(self._checked(item, None, f"requests[{len(self.est_tokens)}]"))

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        encoded = []
        for line in lines:
            self._line_number += 1
            text = line.strip()
            if not text:
                continue
            where = f"line {self._line_number} (requests[{len(self.est_tokens)}])"
            try:
                item = strict_json.loads(text)
            except strict_json.JsonError as error:
                raise BadInput(f"{where}: {error}") from None
            encoded.append(self._checked(item, text, where))
        self._write(b"".join(encoded))

    def _checked(self, item: Any, raw: bytes | None, where: str) -> bytes:
        try:
            facts = self._examine(item, self._rules)
        except ItemError as error:
            place = f"{where}.{error.field}" if error.field else where
            raise BadInput(f"{place}: {error.message}") from None
        if may_not_fit(facts, self._rules) and len(self.long_items) < MOST_COUNTED:
            self.long_items.append(LongItem(where, item))
        return self._row(facts, facts.reference, raw if raw is not None else orjson.dumps(item))
