"""Compares conversations with what their clients know: each turn is there once, and each was asked with those before it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app.states import TurnState
from tests.crash.conversations import Said, Talk
from tests.crash.engines import text_of
from tests.crash.history import History

Rows = Callable[[str], Awaitable[Sequence[tuple[Any, ...]]]]

_TURNS = f"""
select s.session_id, t.n, t.turn_id, t.input, t.output from session s join turn t using (session_id)
where t.state = '{TurnState.DONE}' order by s.session_id, t.n"""
_LEFT_OVER = f"""
select 'conversations that are busy', count(*) from session where turn_id is not null
union all select 'turns that have not ended', count(*) from turn where state in ('{TurnState.QUEUED}', '{TurnState.RUNNING}')
union all select 'conversations whose version is not that of their last turn', count(*)
  from session s where version <> (select coalesce(max(n), 0) from turn t where t.session_id = s.session_id)"""


@dataclass(frozen=True, slots=True)
class Done:
    """A stored turn with its answer. `texts`: what was said and what was answered."""

    turn_id: UUID
    texts: tuple[str, str]


async def judge(history: History, rows: Rows, talks: Sequence[Talk]) -> None:
    """Call it when the system is at rest. `rows`: runs a query."""
    found: dict[UUID, list[Done]] = {}
    for session_id, _, turn_id, given, output in await rows(_TURNS):
        texts = text_of(orjson.loads(given)[-1]), text_of(orjson.loads(output)["output"][-1])
        found.setdefault(session_id, []).append(Done(turn_id, texts))
    for talk in talks:
        compare(history, talk, found.get(UUID(talk.public_id.partition("_")[2]), []))
    for what, n in await rows(_LEFT_OVER):
        if n:
            history.wrong("kill_lost", f"{n} {what}")
    history.notes["conversations"] = len(talks)
    history.notes["turns of conversations"] = sum(len(turns) for turns in found.values())


def compare(history: History, talk: Talk, done: Sequence[Done]) -> None:
    """The turns of one conversation: `done` are those that are stored, in order."""
    places: dict[str, int] = {}
    for place, turn in enumerate(done):
        if turn.texts[0] in places:
            history.wrong("kill_doubled", f"{turn.texts[0]!r} is there twice")
        places[turn.texts[0]] = place
    if more := places.keys() - {said.text for said in talk.said}:
        history.wrong("kill_doubled", f"{sorted(more)[:3]} were never said")
    for said in talk.said:
        if said.text in places:
            _compare_turn(history, said, places[said.text], done)
        elif said.answer:
            history.wrong("kill_lost", f"{said} is not there")


def _compare_turn(history: History, said: Said, place: int, done: Sequence[Done]) -> None:
    turn = done[place]
    if said.answer is not None and (said.response_id, said.answer) != ("resp_" + turn.turn_id.hex, turn.texts[1]):
        history.wrong("kill_wrong_lineage", f"{said}, but stored is {turn}")
    past = [text for before in done for text in before.texts]
    lengths = []
    for context in history.contexts:
        if context[-1] == said.text:
            lengths.append(len(context) - 1)
            if list(context[:-1]) != past[: len(context) - 1]:
                history.wrong("kill_wrong_lineage", f"{said.text!r} was asked after {context[:-1]}, stored are {past}")
    if max(lengths, default=-1) != 2 * place:
        history.wrong("kill_wrong_lineage", f"{said.text!r} is turn {place}, and was asked after {lengths} texts")
