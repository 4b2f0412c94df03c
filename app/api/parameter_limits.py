"""How long and how large parameters may be: each has a bound, which the OpenAPI document tells."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

MOST_CHARACTERS = 1024
LARGEST = 2**31 - 1
# As FastAPI cannot know them: of parameters that a route parses by itself, and refuses where they are too long.
BOUNDED: dict[str, Any] = {"type": "string", "maxLength": MOST_CHARACTERS, "pattern": r"^[^\x00]*$"}


def _without_nul(text: str) -> str:
    """PostgreSQL keeps no such text. Raises ValueError."""
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Text = Annotated[
    str,
    Field(max_length=MOST_CHARACTERS, json_schema_extra={"pattern": BOUNDED["pattern"]}),
    AfterValidator(_without_nul),
]
Texts = Annotated[list[Text], Field(max_length=100)]
Number = Annotated[int, Field(ge=1, le=LARGEST)]


NUMBER = "^[1-9][0-9]{0,17}$"  # of a delivery or an event, in text


def number(text: str) -> int | None:
    """The id of a delivery or an event; None for what is none."""
    return int(text) if re.fullmatch(NUMBER, text) else None


def declared(least: float, most: float) -> dict[str, Any]:
    """Bounds that a verb checks, whose error says more than FastAPI's would: for the document."""
    return {"minimum": least, "maximum": most}
