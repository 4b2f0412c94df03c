"""Limits on the length and size of parameters. The OpenAPI document contains them."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

MOST_CHARACTERS = 1024
LARGEST = 2**31 - 1
# For parameters that a route parses itself, which FastAPI cannot know; too long ones are refused.
BOUNDED: dict[str, Any] = {"type": "string", "maxLength": MOST_CHARACTERS, "pattern": r"^[^\x00]*$"}


def _without_nul(text: str) -> str:
    """The text. Raises ValueError for a NUL character, which PostgreSQL cannot store."""
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


def cursor(places: str) -> Any:
    """The parameter that says where a page of a list begins; without it, and where it is empty, at its begin. `places`: the
    pattern of others.
    """
    extra: Any = {"pattern": f"^$|{places}"}
    return Field(None, json_schema_extra=extra, description="the `cursor` of the page before; default: the first page")


NUMBER = "^[1-9][0-9]{0,17}$"  # the id of a delivery or an event, as text


def number(text: str) -> int | None:
    """The id of a delivery or an event; None for an invalid one."""
    return int(text) if re.fullmatch(NUMBER, text) else None


def declared(least: float, most: float) -> dict[str, Any]:
    """Limits for the OpenAPI document only. The route checks them, with a better error message than FastAPI's."""
    return {"minimum": least, "maximum": most}
