"""The problems of a policy's text, with their lines. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in the text of a policy. `line` counts from 1."""

    line: int
    rule: str
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.rule}, {self.field}" if self.field else self.rule
        return f"line {self.line}: {place}: {self.message}"


class PolicyError(ValueError):
    """The text is not a policy. The message has every problem on a line of its own."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


_KEY = re.compile(r"(?:^|(?<=[\s{,.\[\"]))([^\s{},.\"\[\]=]+)[\"\]]?\s*[=.\]]")


class Lines:
    """Finds the line of a rule's field in the text, which the parser of TOML does not tell."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._begins = [n for n, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]
        self._known: dict[int | None, dict[str, int]] = {}  # by rule, the first line of each name in it

    def of(self, name: str, rule: int | None = None) -> int:
        """The line that names this field; that of the rule's beginning, if none does."""
        begin, end = 0, len(self._lines)
        if rule is not None and rule < len(self._begins):
            begin = self._begins[rule]
            end = self._begins[rule + 1] if rule + 1 < len(self._begins) else end
        if rule not in self._known:
            named = ((key[1], n) for n in range(end - 1, begin - 1, -1) for key in _KEY.finditer(self._lines[n]))
            self._known[rule] = dict(named)
        return self._known[rule].get(name, begin) + 1
