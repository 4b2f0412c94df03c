"""Values that pydantic refuses are described in our words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.wrong_values import field_at, wrong


@dataclass(frozen=True)
class Inner:
    level: Annotated[int, Field(gt=0, le=5)] | None = None


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(20, ge=1, le=100)
    share: float = 0.5
    rate: Annotated[float, Field(gt=0, le=2.5)] | None = None
    inner: Annotated[list[Inner], Field(min_length=1, max_length=2)] | None = None
    on: bool = False
    verb: Literal["pause", "resume"] = "pause"
    name: Annotated[str, Field(max_length=3)] = "a"
    names: list[str] = []
    at: datetime | None = None
    env: Mapping[str, str] = {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"limit": "abc"}, "must be a whole number, not 'abc'"),
        ({"limit": 1.5}, "must be a whole number, not 1.5"),
        ({"limit": None}, "must be a whole number, not null"),
        ({"limit": {}}, "must be a whole number"),
        ({"limit": 0}, "must be between 1 and 100, not 0"),
        ({"limit": 101}, "must be between 1 and 100, not 101"),
        ({"limit": "9" * 5000}, "must be a whole number, not '" + "9" * 60 + "…'"),
        ({"share": "x"}, "must be a number, not 'x'"),
        ({"on": "perhaps"}, "must be true or false, not 'perhaps'"),
        ({"verb": "stop"}, "must be 'pause' or 'resume', not 'stop'"),
        ({"rate": 0}, "must be more than 0 and at most 2.5, not 0"),
        ({"inner": [{"level": 9}]}, "must be between 1 and 5, not 9"),
        ({"inner": [{}, {}, {}]}, "must have 1 to 2 entries, not 3"),
        ({"name": "abcd"}, "must have at most 3 characters"),
        ({"name": 1}, "must be a string, not 1"),
        ({"names": "a"}, "must be a list, not 'a'"),
        ({"at": "soon"}, "must be a time like 2026-11-29T12:00:00Z, not 'soon'"),
        ({"env": 1}, "must be an object, not 1"),
        ({"more": 1}, "is not a known name"),
    ],
)
def test_a_wrong_value_is_named_with_the_rule_that_it_breaks(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Given.model_validate(json.loads(json.dumps(given)))
    first = caught.value.errors()[0]
    assert wrong(first, of=field_at(Given, first["loc"])) == words


def test_without_its_field_a_range_is_said_as_far_as_it_is_known() -> None:
    with pytest.raises(ValidationError) as caught:
        Given.model_validate({"limit": 0})
    assert wrong(caught.value.errors()[0]) == "must be at least 1, not 0"


def test_a_secret_value_is_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Given.model_validate({"limit": "hidden"})
    assert wrong(caught.value.errors()[0], secret=True) == "must be a whole number"
