"""The metadata of a batch or a response, with OpenAI's limits and error messages."""

from typing import Any

from app import labels
from app.batches.validation import not_json
from app.errors import BadInput
from app.openai_codes import OpenAICode


def read_metadata(given: Any) -> dict[str, str] | None:
    """The metadata in a body; None: there is none. Raises BadInput naming the key."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadInput(
            "Invalid type for 'metadata': expected an object.", param="metadata", reason=OpenAICode.INVALID_TYPE
        )
    for key, value in given.items():
        if not isinstance(value, str):
            where = f"metadata.{key[:64]}"
            message = f"Invalid type for '{where}': expected a string, but got {not_json.kind(value)} instead."
            raise BadInput(message, param=where, reason=OpenAICode.INVALID_TYPE)
    labels.check_metadata(given, "metadata")
    return given
