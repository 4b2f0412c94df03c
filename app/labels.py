"""The limits on the tags and the metadata of a batch. Subscriptions filter by both, so they obey the same limits. Pure."""

from collections.abc import Mapping

from app.errors import BadInput

MOST_TAGS = 5
METADATA_PAIRS, METADATA_KEY, METADATA_VALUE = 16, 64, 512  # those of OpenAI's batches


def check_metadata(metadata: Mapping[str, str], where: str) -> None:
    """Raise BadInput, naming the field `where`, unless a batch can have these pairs."""
    if len(metadata) > METADATA_PAIRS:
        raise BadInput(f"{where}: must have at most {METADATA_PAIRS} pairs, got {len(metadata)}", param=where)
    for key, value in metadata.items():
        field = f"{where}.{key}"
        if not 0 < len(key) <= METADATA_KEY:
            raise BadInput(f"{where}: each key must have 1 to {METADATA_KEY} characters, got {len(key)}", param=where)
        if len(value) > METADATA_VALUE:
            raise BadInput(f"{field}: must have at most {METADATA_VALUE} characters, got {len(value)}", param=field)
        if "\0" in field + value:
            raise BadInput(f"{where}: must not contain a NUL character", param=where)
