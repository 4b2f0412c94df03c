"""The queries of a listing of batches, and of a batch's results."""

from datetime import UTC, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from app.api import submits
from app.batches import listing
from app.engines.catalogue import Catalogue
from app.errors import BadInput
from app.queue.listing import Filters

MOST_LISTED = 100
_MOST_AFTER = 2**31 - 1


class Listing(BaseModel):
    """The query of a listing. Every filter may be given several times: any of the states and models, all tags and metadata."""

    model_config = ConfigDict(extra="forbid")

    state: list[str] = Field([], description=f"any of: {', '.join(listing.WORDS)}")
    model: list[str] = Field([], description="a name or an alias")
    tag: list[str] = Field([], description="has this tag")
    tags: list[str] = Field([], description="has these tags, by commas; the same as several `tag`")
    metadata: list[str] = Field([], description="`key:value`: has this pair")
    created_after: datetime | None = Field(
        None, description="made then or later: ISO 8601 or Unix seconds; UTC where no zone is named"
    )
    created_before: datetime | None = Field(None, description="made before")
    limit: int = Field(20, ge=1, le=MOST_LISTED, description="batches in one page")
    after: str | None = Field(None, description="the `cursor` of the page before")


class Reading(BaseModel):
    """The query of a batch's results."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=_MOST_AFTER, description="without the first so many lines")
    failed: bool = Field(False, description="only items that failed")


def filters(asked: Listing, models: Catalogue) -> Filters:
    """What a listing asks for. Raises BadInput naming the parameter."""
    tags = (*asked.tag, *(tag for value in asked.tags for tag in value.split(",") if tag))
    texts = [*asked.state, *asked.model, *tags, *asked.metadata]
    if any("\0" in text for text in texts):
        raise BadInput("A filter must not hold a NUL character")
    if unknown := [word for word in asked.state if word not in listing.WORDS]:
        raise BadInput(f"state: must be one of {', '.join(listing.WORDS)}, got {unknown[0][:40]}", param="state")
    found = [models.resolve(name) for name in asked.model]
    names = [model.name if model else name for model, name in zip(found, asked.model, strict=True)]
    return Filters(
        tuple(asked.state),
        tuple(names),
        tags,
        dict(_pair(text) for text in asked.metadata),
        _with_zone(asked.created_after),
        _with_zone(asked.created_before),
    )


def _pair(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise BadInput(f"metadata: must be key:value, got {text[:60]}", param="metadata")
    return key, value


def _with_zone(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def cursor(text: str) -> UUID:
    """The batch behind which a page begins. Raises BadInput."""
    parsed = submits.batch_id(text)
    if parsed is None:
        raise BadInput(f"after: must be the cursor of the page before, got {text[:60]}", param="after")
    return parsed
