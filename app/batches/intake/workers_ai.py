"""The items of a submit to Workers AI's routes, checked while they arrive. The first invalid one refuses the submit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import orjson

from app.admission.admission import Admission
from app.batches.intake.prompt_length import MOST_COUNTED, LongItem, may_not_fit
from app.batches.intake.spool import Spool, SpoolOptions
from app.batches.validation import not_json, strict_json, text_kinds
from app.batches.validation.text_generation import Examine, ItemError, ItemFacts, ItemRules
from app.engines.catalogue import Model
from app.errors import BadInput, PolicyDenied, SensitiveFound


class ItemIntake(Spool):
    """The items of one model, from a JSON body or from NDJSON. `look` is called with each valid item and its place."""

    def __init__(
        self,
        batch_id: int,
        model: Model,
        rules_of: Callable[[Model], ItemRules],
        examine: Examine,
        endpoint: str,
        admission: Admission,
        look: Callable[[Mapping[str, Any], str], None] | None = None,
        **options: Unpack[SpoolOptions],
    ) -> None:
        super().__init__(batch_id, model.name, **options)
        self._model, self._endpoint, self._admission = model, endpoint, admission
        self._open = admission.open  # read for each item
        self._rules_of = rules_of
        self._rules = rules_of(model)
        self._examine = examine
        self._look = look
        self._line_number = 0
        self.long_items: list[LongItem] = []  # a few of the items that may be too long

    def add_items(self, items: Sequence[Any]) -> None:
        """Add the items of a JSON body that strict_json has read. Raises BadInput naming the item and its field."""
        for item in items:
            self._add_checked(item, None, f"requests[{len(self.est_tokens)}]")

    def _add_lines(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._line_number += 1
            text = line.strip()
            if not text:
                continue
            where = f"line {self._line_number} (requests[{len(self.est_tokens)}])"
            try:
                item = strict_json.loads(text)
            except strict_json.JsonError as error:
                raise self._no_item(f"{where}: {self._shown(str(error))}") from None
            if isinstance(item, list):
                raise self._no_item(f"{where}: must be a JSON object, not {not_json.kind(item)}")
            self._add_checked(item, text, where)

    def _no_item(self, message: str) -> BadInput:
        """The error of a line that is no item; of the first one: what the body is instead of lines."""
        what = "" if self.est_tokens else text_kinds.of_file(self._lines.head)
        return BadInput(f"The body is {what}" if what else message)

    def _empty(self) -> str:
        return "the body has only empty lines; it needs an item in each line" if self._line_number else super()._empty()

    def _add_checked(self, item: Any, raw: bytes | None, where: str) -> None:
        try:
            self._add_item(item, raw, where)
        except ItemError as error:
            place = f"{where}.{error.field}" if error.field else where
            raise BadInput(f"{place}: {error.message}") from None
        except (PolicyDenied, SensitiveFound) as denial:
            denial.message = f"{where}: {denial.message}"
            raise
        if self._look is not None:
            self._look(item, where)

    def _add_item(self, item: Any, raw: bytes | None, where: str) -> None:
        if not self._open:
            self._add_admitted(item, raw, where)
            return
        facts = self._examine(item, self._rules)
        self._note_long(item, facts, self._rules, where)
        self._add(facts, facts.reference, raw if raw is not None else orjson.dumps(item))

    def _add_admitted(self, item: Any, raw: bytes | None, where: str) -> None:
        """Add an item that rules of the policy may change."""
        admitted = self._admission.admit(self._model, item, self._endpoint, self._examined)
        facts, asked = admitted.facts, raw if raw is not None else orjson.dumps(item)
        if admitted.model is self._model:  # only counted for that one
            self._note_long(admitted.item, facts, self._rules, where)
        body = asked if admitted.item is item else orjson.dumps(admitted.item)
        self._add(facts, facts.reference, body, model=admitted.model, asked=asked, values=admitted.values)

    def _shown(self, text: str) -> str:
        redaction = self._admission.redaction
        return text if redaction is None else redaction.scrubbed(text)

    def _examined(self, model: Model, item: Any) -> ItemFacts:
        return self._examine(item, self._rules if model is self._model else self._rules_of(model))

    def _note_long(self, item: Any, facts: ItemFacts, rules: ItemRules, where: str) -> None:
        if may_not_fit(facts, rules) and len(self.long_items) < MOST_COUNTED:
            self.long_items.append(LongItem(where, item))
