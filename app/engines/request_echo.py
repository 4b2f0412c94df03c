"""What a response says again of its request, as OpenAI's objects do; an engine's answer leaves some of it out. Pure."""

from collections.abc import Mapping
from typing import Any

FLEX = "flex"
# With what it is where nothing was said. An engine's own word for these is not OpenAI's, or is none.
_ECHOED: dict[str, Any] = {
    "max_output_tokens": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "top_logprobs": 0,
    "truncation": "disabled",
}
ECHOED = frozenset({*_ECHOED, "service_tier"})


def echo(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a response that repeat what was asked. `service_tier` is the one that served it."""
    tier = FLEX if asked.get("service_tier") == FLEX else "default"
    return repeated(asked, _ECHOED) | {"service_tier": tier}


def repeated(asked: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The fields named by `usual` as they were asked for; where they were not, as `usual` has them."""
    return {name: value if asked.get(name) is None else asked[name] for name, value in usual.items()}
