"""The public ids of pipelines: `pipe_` and the 32 hexadecimal digits of a UUID. Pure."""

from uuid import UUID

PREFIX = "pipe_"


def format_id(request_id: UUID) -> str:
    """The public id of a pipeline."""
    return PREFIX + request_id.hex


def parse_id(text: str) -> UUID | None:
    """The pipeline that a public id names. None: the text is not an id."""
    try:
        return UUID(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None
    except ValueError:
        return None
