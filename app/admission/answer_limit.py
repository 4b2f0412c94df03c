"""Limits the answer of a request to fewer tokens than it asks for. Pure."""

from typing import Any

from app.engines.requests import CHAT, RESPONSES, is_response_request, lengths


def limited(item: dict[str, Any], endpoint: str, most: int) -> dict[str, Any]:
    """The request with answers of at most `most` tokens. `endpoint`: its route at the engine."""
    names = lengths(RESPONSES if endpoint == CHAT and is_response_request(item) else endpoint)
    given = {name: min(item[name], most) for name in names if type(item.get(name)) is int}
    if names and not given:
        given = {names[0]: most}
    return {**item, **given}
