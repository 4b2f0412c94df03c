"""One submit in Workers AI's form on its way in: items are checked as they arrive. The first that breaks a rule refuses all."""

from collections.abc import Sequence
from typing import Any, Unpack

import orjson

from app.batches.intake.prompt_length import MOST_COUNTED, Close, may_not_fit
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation import strict_json
from app.batches.validation.text_generation import Examine, ItemError, ItemRules
from app.errors import BadInput


class ItemIntake(Spool):
    """Items of one model, one by one or as NDJSON."""

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
        self.close_to_limit: list[Close] = []  # a few of the items that may be too long

    def add_items(self, items: Sequence[Any]) -> None:
        """Items of a JSON document that strict_json has read. Raises BadInput naming the item and its field."""
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
        if may_not_fit(facts, self._rules) and len(self.close_to_limit) < MOST_COUNTED:
            self.close_to_limit.append(Close(where, item))
        return self._row(facts, facts.reference, raw if raw is not None else orjson.dumps(item))
