"""Which batch requests may use a LoRA adapter: an engine step has room for `max_loras` different ones.

vLLM before 0.33 counts the adapters of the scheduled requests only, and ends with a failed assertion when more than
`max_loras` are scheduled. From 0.33 it counts all running requests, so a frozen batch request would keep a synchronous one
waiting. Both are avoided in the same way: the running requests never use more than `max_loras` adapters, and those of
synchronous requests, waiting ones included, come first.
"""

from collections.abc import Iterable
from typing import Any


class LoraPlaces:
    """The adapters that have a place. Each request that is `admitted` takes one, unless its adapter has one already."""

    def __init__(self, most: int, sync: Iterable[Any]) -> None:
        self._most = most
        self._taken = {r.lora_request.lora_int_id for r in sync if r.lora_request}

    def admitted(self, r: Any) -> bool:
        """Whether the batch request's adapter has or gets a place."""
        if not r.lora_request or r.lora_request.lora_int_id in self._taken:
            return True
        if len(self._taken) >= self._most:
            return False
        self._taken.add(r.lora_request.lora_int_id)
        return True
