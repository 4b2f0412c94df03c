"""The limits on the tags and the metadata of a batch. Subscriptions filter by both, so they obey the same limits. Pure."""

from collections.abc import Mapping

from app.errors import BadInput

MOST_TAGS = 5
METADATA_PAIRS, METADATA_KEY, METADATA_VALUE = 16, 64, 512  # those of OpenAI's batches


def check_metadata(metadata: Mapping[str, str], where: str) -> None:
    """Raise BadInput, naming the field `where`, unless a batch can have these pairs."""
    sizes = all(0 < len(key) <= METADATA_KEY and len(value) <= METADATA_VALUE for key, value in metadata.items())
    if len(metadata) > METADATA_PAIRS or not sizes or any("\0" in part for pair in metadata.items() for part in pair):
        raise BadInput(
            f"{where}: at most {METADATA_PAIRS} pairs, keys of 1 to {METADATA_KEY} characters,"
            f" values of at most {METADATA_VALUE} characters"
        )
