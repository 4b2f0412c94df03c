"""What a request continues: a conversation, an earlier response, or nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from app import clock, off_loop
from app.errors import BadInput
from app.policy.vaults import NO_VALUES
from app.sessions import reading, service, transcript
from app.sessions.sealing import CLEAR, TurnSeal
from app.sessions.service import CONVERSATION, RESPONSE, Keeper, Session
from app.sessions.transcript import Item


@dataclass(frozen=True, slots=True)
class Continued:
    """What a request continues. `before`: the items that come before its own. `values`: of their placeholders.

    `n`, `parent`: of a turn of no conversation. `seal`: of what it continues; without a key, none is needed, or none exists yet.
    """

    before: Sequence[Item] = ()
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)
    seal: TurnSeal = CLEAR
    session: Session | None = None
    parent: UUID | None = None
    n: int = 1

    @property
    def session_id(self) -> UUID | None:
        """The conversation. None: it is none."""
        return self.session.session_id if self.session else None

    @property
    def affinity(self) -> str | None:
        """What requests have in common that should reach the same engine."""
        if self.session is not None:
            return service.name(self.session.session_id)
        return RESPONSE + self.parent.hex if self.parent is not None else None

    @property
    def shown(self) -> dict[str, Any]:
        """The fields of the response object that say what it continues."""
        conversation = {"id": service.name(self.session.session_id)} if self.session is not None else None
        previous = RESPONSE + self.parent.hex if self.parent is not None else None
        return {"conversation": conversation, "previous_response_id": previous}

    def item(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The request with what it continues before its own input."""
        if not self.before:
            return dict(asked)
        own = asked.get("input")
        if not isinstance(own, (str, list)) or not own:
            return dict(asked)  # which is refused
        return {**asked, "input": [*self.before, *transcript.as_items(own)]}

    def own_input(self, item: Mapping[str, Any]) -> list[Item]:
        """Of the request as it was admitted, its own items."""
        return transcript.as_items(item["input"])[len(self.before) :]


NOTHING = Continued()


def conversation_of(item: Mapping[str, Any]) -> UUID | None:
    """The conversation that a body names. Raises BadInput, NotFound."""
    given = item.get("conversation")
    if given is None:
        return None
    if item.get("previous_response_id") is not None:
        raise BadInput(
            "previous_response_id: cannot be used together with conversation; leave one of them out",
            param="previous_response_id",
        )
    if isinstance(given, dict):
        given = given.get("id")
    if not isinstance(given, str):
        raise BadInput("conversation: must be the id of a conversation, or an object with it", param="conversation")
    return service.parse(given, CONVERSATION, "conversation")


async def of_session(session: Session) -> Continued:
    """A conversation as it was read."""
    before = await off_loop.of_size(session.held, transcript.rendered, session.past, session.summary)
    return Continued(before, session.values, session.seal, session)


async def of_response(keeper: Keeper, previous: object) -> Continued:
    """An earlier response and those before it. Raises NotFound, BadInput for one that has no answer.

    Of one in the background whose batch has just ended, the steward stores the answer at once; this waits for it.
    """
    turn_id = service.parse(previous, RESPONSE, "previous_response_id")
    deadline = clock.monotonic() + reading.SETTLE_SECONDS
    while True:
        chain = await reading.chain(keeper, turn_id)
        if not chain:
            raise service.missing(previous, "previous_response_id")
        last = chain[-1]
        if last.response is not None or clock.monotonic() >= deadline or not await reading.is_ending(keeper, last):
            break
        await asyncio.sleep(reading.POLL_SECONDS)
    if last.response is None:
        raise BadInput(
            f"previous_response_id: the response is {last.state}; wait for its answer", param="previous_response_id"
        )
    size, past = sum(turn.size for turn in chain), [turn.past for turn in chain]
    before = await off_loop.of_size(size, transcript.rendered, past)
    return Continued(before, reading.values_of(chain), last.seal, parent=turn_id, n=last.n + 1)
