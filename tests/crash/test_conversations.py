"""Claims about the checker of conversations: a turn that is lost, is there twice, or did not know those before it is found."""

from uuid import UUID

import pytest

from tests.crash.conversation_verdict import Done, compare
from tests.crash.conversations import Said, Talk
from tests.crash.history import History


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ("nothing", None),
        ("lose", "kill_lost"),
        ("add", "kill_doubled"),
        ("repeat", "kill_doubled"),
        ("other answer", "kill_wrong_lineage"),
        ("other id", "kill_wrong_lineage"),
        ("forget", "kill_wrong_lineage"),
        ("run after its end", "kill_wrong_lineage"),
    ],
)
def test_each_kind_of_violation_in_a_conversation_is_counted(change: str, count: str | None) -> None:
    history, turns = History(), [Done(UUID(int=n), (f"question {n}", f"answer {n}")) for n in range(3)]
    said = [Said(turn.texts[0], background=False, response_id=f"resp_{n:032x}") for n, turn in enumerate(turns)]
    for each, turn in zip(said, turns, strict=True):
        each.answer = turn.texts[1]
    past = [text for turn in turns for text in turn.texts]
    history.contexts = [tuple(past[: 2 * n + 1]) for n in range(3)]
    match change:
        case "lose":
            del turns[2]
        case "add":
            turns.append(Done(UUID(int=9), ("nobody said this", "so")))
        case "repeat":
            turns.append(turns[2])
            history.contexts.append((*past, turns[2].texts[0]))
        case "other answer":
            said[2].answer = "another answer"
        case "other id":
            said[2].response_id = f"resp_{9:032x}"
        case "forget":
            history.contexts[2] = history.contexts[2][-1:]
        case "run after its end":
            history.contexts.append((*past, turns[2].texts[0]))
    compare(history, Talk("conv_0", said), turns)
    assert {name for name, n in history.counts.items() if n} == ({count} if count else set())
