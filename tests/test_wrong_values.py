"""Values that pydantic refuses are described in our words."""

import json
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.wrong_values import wrong


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(20, ge=1, le=100)
    share: float = 0.5
    on: bool = False
    verb: Literal["pause", "resume"] = "pause"
    name: Annotated[str, Field(max_length=3)] = "a"
    names: list[str] = []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"limit": "abc"}, "must be a whole number, not 'abc'"),
        ({"limit": 1.5}, "must be a whole number, not 1.5"),
        ({"limit": None}, "must be a whole number, not null"),
        ({"limit": {}}, "must be a whole number"),
        ({"limit": 0}, "must be at least 1, not 0"),
        ({"limit": 101}, "must be at most 100, not 101"),
        ({"limit": "9" * 5000}, "must be a whole number, not '" + "9" * 60 + "…'"),
        ({"share": "x"}, "must be a number, not 'x'"),
        ({"on": "perhaps"}, "must be true or false, not 'perhaps'"),
        ({"verb": "stop"}, "must be 'pause' or 'resume', not 'stop'"),
        ({"name": "abcd"}, "must have at most 3 characters"),
        ({"name": 1}, "must be a text, not 1"),
        ({"names": "a"}, "must be a list, not 'a'"),
        ({"more": 1}, "is not a known name"),
    ],
)
def test_a_wrong_value_is_named_with_the_rule_that_it_breaks(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Given.model_validate(json.loads(json.dumps(given)))
    assert wrong(caught.value.errors()[0]) == words


def test_a_secret_value_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Given.model_validate({"limit": "hidden"})
    assert wrong(caught.value.errors()[0], secret=True) == "must be a whole number"
