"""Withholds the calls of forbidden tools from what callers read of a batch.

The stored answers stay as their engines gave them. A batch keeps the terms of its items from their arrival on
(`policy.tools`), so that workers need no policy. Every reader of answers passes here.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app.policy import tool_calls
from app.policy.denials import Denial
from app.policy.tool_call_events import EventWithholder
from app.policy.tool_calls import CallJudge
from app.policy.tool_terms import ToolTerms
from app.queue.reads import ItemResult

OnWithheld = Callable[[Denial, UUID], object]  # called with each call that is withheld, and its batch


def unnoted(denial: Denial, request_id: UUID) -> None:
    """For a reader that shows no answer to anybody."""


@dataclass(frozen=True, slots=True)
class Withholder:
    """Withholds from the results of one batch. `terms`: those that its items have; each item has one of them."""

    terms: tuple[ToolTerms, ...]
    on_withheld: Callable[[Denial], object]

    @property
    def needs_items(self) -> bool:
        """Whether the results have to be read with their requests: which terms an item has can be seen by its tools only."""
        return len(self.terms) > 1

    def item(self, found: ItemResult) -> ItemResult:
        """One result."""
        if not found.ok or found.body is None:
            return found
        return found._replace(body=self.body(found.body, found.item))

    def body(self, answer: bytes, request: bytes | None) -> bytes:
        """The body of one answer. `request`: its item, if the results are read with it."""
        mixed = self.needs_items and request is not None
        offered = tool_calls.offered(orjson.loads(request or b"{}")) if mixed else ()
        return tool_calls.withheld_body(answer, CallJudge(self.terms, self.on_withheld, offered))

    async def pages(
        self, pages: AsyncIterator[list[ItemResult]], *, with_items: bool
    ) -> AsyncIterator[list[ItemResult]]:
        """Pages of results, with their requests or without."""
        async for page in pages:
            found = map(self.item, page)
            yield [item if with_items else item._replace(item=None) for item in found]

    def events(self) -> EventWithholder:
        """What withholds from the stream of a batch of one request."""
        return EventWithholder(CallJudge(self.terms, self.on_withheld))


def withholder(policy: Mapping[str, Any] | None, request_id: UUID, on_withheld: OnWithheld) -> Withholder | None:
    """What withholds from the results of a batch. `policy`: what it keeps about its admission. None: all may be read."""
    kept = (policy or {}).get("tools")
    if not kept:
        return None
    terms = tuple(map(ToolTerms.of_json, kept))
    return Withholder(terms, lambda denial: on_withheld(denial, request_id))
