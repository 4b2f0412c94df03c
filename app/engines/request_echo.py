"""Fields of a response that repeat its request, as in OpenAI's objects. An engine's answer lacks some of them. Pure."""

from collections.abc import Mapping
from typing import Any

FLEX = "flex"
# By field: its value if the request does not set it. Engines return other values, or none.
_ECHOED: dict[str, Any] = {
    "max_output_tokens": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "top_logprobs": 0,
    "truncation": "disabled",
}
ECHOED = frozenset({*_ECHOED, "service_tier"})


def echo(requested: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a response that repeat the request. `service_tier` is the tier that served it."""
    tier = FLEX if requested.get("service_tier") == FLEX else "default"
    return repeated(requested, _ECHOED) | {"service_tier": tier}


def repeated(requested: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The fields named in `usual`, with the request's values, or the values of `usual` if the request has none."""
    return {name: value if requested.get(name) is None else requested[name] for name, value in usual.items()}
