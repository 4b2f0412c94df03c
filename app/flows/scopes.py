"""Which paths a field of a stage may read. Pure."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from app.flows.language import WORDS, Path
from app.flows.stages import INPUT_NAME, Single

ANSWER = ("text", "json", "choices", "ok", "valid", "error", "usage")
ITEM, EACH, PARTS = "item", ("each", "k"), ("parts", "count", "missing")
RESERVED = WORDS | {*ANSWER, ITEM, *EACH, *PARTS, INPUT_NAME}


@dataclass(frozen=True, slots=True)
class Scope:
    """What can be read in one field. `answer`: fields of the parent's answer. `each`: the element of a fan-out. `parts`: what can
    be read of each part of a pack; None: it is no pack.
    """

    single: Single
    answer: bool
    each: bool = False
    parts: "Scope | None" = None

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots that there are."""
        return (
            *((ITEM,) if self.single.line else ()),
            *(ANSWER if self.answer else ()),
            *(EACH if self.each else ()),
            *(PARTS if self.parts else ()),
            *self.single.names,
        )

    def problem(self, path: Path) -> str | None:
        """Why this path cannot be read here, and what to write; None: it can."""
        root = path.root
        if root not in self.roots:
            return self._unknown(root)
        if root in self.single.names:
            return _incomplete(path, ANSWER)
        if root == "parts":
            assert self.parts is not None
            keys = path.keys[1:] if path.keys and isinstance(path.keys[0], int) else path.keys
            if not keys or not isinstance(keys[0], str):
                return f"parts is a list of items; say what of them, like parts.{self.parts.roots[0]}"
            inner = self.parts.problem(Path(keys[0], keys[1:]))
            return inner and f"of the parts, {inner}"
        return None

    def _unknown(self, root: str) -> str:
        if self.parts and root in self.parts.roots:
            return f"a pack has many items; write parts.{root}"
        if root in ANSWER:
            return f"the input has no answers, so there is no {root}; {self._choose()}"
        if root in EACH:
            return f"there is {root} only in the body of a stage with each; {self._choose()}"
        if root in PARTS:
            return f"there is {root} only in the body of a stage with pack; {self._choose()}"
        if root == ITEM:
            return f"behind a pack, an item has no single line of the input; {self._choose()}"
        near = difflib.get_close_matches(root, self.roots, 1)
        mend = f"did you mean {near[0]}?" if near else self._choose()
        return f"{root[:60]!r} is neither a root nor a stage above this one of which it has one item; {mend}"

    def _choose(self) -> str:
        return f"choose from {', '.join(self.roots)}" if self.roots else "nothing can be read here"


def _incomplete(path: Path, fields: Sequence[str]) -> str | None:
    if path.keys and path.keys[0] in fields:
        return None
    return f"say what of the answer of {path.root}, like {path.root}.text; choose from {', '.join(fields)}"
