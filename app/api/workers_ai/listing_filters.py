"""The query parameters of a listing of batches and of a batch's results."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.api import submit_params
from app.api.parameter_limits import MOST_CHARACTERS, Text, Texts, cursor, declared
from app.batches import listing
from app.engines.catalogue import Catalogue
from app.engines.outcome import ErrorClass
from app.errors import BadInput
from app.queue.listing import Filters

MOST_LISTED = 100
_LATEST = 20_000_000_000
_MOST_AFTER = 2**31 - 1
_PAIR: dict[str, Any] = {"type": "string", "maxLength": MOST_CHARACTERS, "pattern": r"^[^\x00:]+:[^\x00]*$"}


def _unix(value: object) -> object:
    """The value; a number must be in the range of Unix seconds. Raises ValueError."""
    try:
        number = float(str(value))
    except ValueError:
        return value
    if not 0 <= number <= _LATEST:
        raise ValueError(f"as Unix seconds it must be 0 to {_LATEST}")
    return value


_Moment = Annotated[
    datetime,
    BeforeValidator(_unix),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", **declared(0, _LATEST)}]}),
]


class BatchListQuery(BaseModel):
    """The query of a listing. Filters may repeat: a batch matches any of the states and models, and all tags and metadata."""

    model_config = ConfigDict(extra="forbid")

    state: Texts = Field(
        [], json_schema_extra={"items": {"enum": [*listing.WORDS]}}, description=f"any of: {', '.join(listing.WORDS)}"
    )
    model: Texts = Field([], description="a name or an alias")
    waits: Texts = Field([], description="waits for any of these codes of `why`; `running`: does not wait")
    error: list[ErrorClass] = Field([], max_length=100, description="items failed with any of these classes of error")
    name: Text | None = Field(None, min_length=1, description="its name begins with this")
    tag: Texts = Field([], description="has this tag")
    tags: Texts = Field([], description="has these tags, separated by commas; the same as several `tag`")
    metadata: Texts = Field(
        [],
        json_schema_extra={"items": _PAIR},
        description="`key:value`: has this pair",
    )
    created_after: _Moment | None = Field(
        None, description="created then or later: ISO 8601 or Unix seconds; UTC where no zone is named"
    )
    created_before: _Moment | None = Field(None, description="created before")
    limit: int = Field(20, ge=1, le=MOST_LISTED, description="batches in one page")
    after: str | None = cursor(submit_params.BATCH_ID)


class ResultQuery(BaseModel):
    """The query of a batch's results."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=_MOST_AFTER, description="skip this many lines")
    failed: bool = Field(False, description="only items that failed")


def filters(query: BatchListQuery, models: Catalogue) -> Filters:
    """The filters of a listing. Raises BadInput naming the parameter."""
    tags = (*query.tag, *(tag for value in query.tags for tag in value.split(",") if tag))
    if unknown := [word for word in query.state if word not in listing.WORDS]:
        raise BadInput(f"state: must be one of {', '.join(listing.WORDS)}, got {unknown[0][:40]}", param="state")
    names = [model.name if (model := models.resolve(name)) else name for name in query.model]
    return Filters(
        tuple(query.state),
        tuple(names),
        tags=tags,
        metadata=dict(_pair(text) for text in query.metadata),
        created_after=_with_zone(query.created_after),
        created_before=_with_zone(query.created_before),
        waits=query.waits,
        errors=[error.value for error in query.error],
        name=query.name,
    )


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise BadInput(f"metadata: must be key:value, got {text[:60]}", param="metadata")
    return key, value


def _with_zone(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
