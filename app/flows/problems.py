"""What can be wrong with one item of a pipeline. Pure."""

from enum import StrEnum

import orjson

CODE = 5006


class Reason(StrEnum):
    """Why an item of a pipeline has an error of its own.

    missing_value: a template or an index reads what is not there. too_long: the request or the value is too large. too_many: a
    list or a pack has more than its stage allows. too_few: a pack has fewer. not_valid: an answer is not what its stage reads.
    timed_out: no answer from outside in time.
    """

    MISSING_VALUE = "missing_value"
    TOO_LONG = "too_long"
    TOO_MANY = "too_many"
    TOO_FEW = "too_few"
    NOT_VALID = "not_valid"
    TIMED_OUT = "timed_out"


class ItemError(Exception):
    """The error of one item; its siblings go on. `field`: of the stage it comes from; `column`: in its text; 0: it has none."""

    def __init__(self, reason: Reason, message: str, field: str = "", column: int = 0) -> None:
        super().__init__(message)
        self.reason, self.message, self.field, self.column = reason, message, field, column

    def of(self, stage: str) -> "ItemError":
        """The same error with its place in the definition in front. `stage`: its name."""
        place = f"{self.field} of stage {stage!r}" + (f", column {self.column}" if self.column else "")
        return ItemError(self.reason, f"{place}: {self.message}")

    @property
    def body(self) -> bytes:
        """The error as a stored result has it."""
        return orjson.dumps({"code": CODE, "reason": self.reason, "message": self.message})
