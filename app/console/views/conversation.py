"""One conversation and one of its turns: growth, tokens, states; what was said is hidden until it is revealed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from app.access.roles import Viewer
from app.console.views import conversations, item, plots, signs, text, times
from app.console.views.batch_actions import Action
from app.console.views.batch_filter import address
from app.console.views.figures import Figure, figure
from app.console.views.plots import Plot, Word
from app.sessions.listing import Listed, ListedTurn, Said
from app.states import TurnState

_STATES = {
    TurnState.QUEUED: (signs.WAITS, "queued"),
    TurnState.RUNNING: (signs.RUNS, "runs"),
    TurnState.DONE: (signs.DONE, "answered"),
    TurnState.FAILED: (signs.BROKEN, "failed"),
    TurnState.CANCELLED: (signs.QUIET, "cancelled"),
}
_FAR = 1000  # turns; nobody asks what is further away
_TOP = 0.92  # the height of the window, or of the largest prompt


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read: a page of its turns, the newest first. `windows`: context windows by model."""

    listed: Listed
    turns: Sequence[ListedTurn]
    more: bool
    windows: Mapping[str, int]


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the templates of the page need."""
    row = seen.listed
    path = f"{conversations.PATH}/{row.public_id}"
    strong, rest = lede(seen)
    return {
        "path": path,
        "public_id": row.public_id,
        "title": name_of(row),
        "strong": strong,
        "rest": rest,
        "sign": conversations.standing(row)[0],
        "figures": figures(seen, now),
        "plot": drawing(seen),
        "table": [[f"{each.n}", f"{each.prompt_tokens:,}"] for each in reversed(seen.turns) if each.prompt_tokens],
        "turns": [_turn(each, row, path, now) for each in seen.turns],
        "pages": _pages(seen, params, path),
    }


def name_of(row: Listed) -> str:
    """What its owner calls it, else the first digits of its id."""
    return text.inert(row.metadata.get("name", ""), 200)[0] or f"Conversation {text.short(row.session_id)}"


def lede(seen: Seen) -> tuple[str, str]:
    """How full the window is and when it will be; what a checkpoint has done."""
    row = seen.listed
    window = seen.windows.get(row.model or "")
    share, left = row.fill(window), row.turns_left(window)
    if share is None:
        strong = "No answer yet." if not row.prompt_tokens else f"Its next prompt begins with {row.tokens:,} tokens."
    else:
        strong = f"Its window is {text.percent(min(share, 1.0))}{text.NBSP}% full"
        strong += (
            f"; at this growth it is full in {text.plural(left, 'turn')}." if left is not None and left <= _FAR else "."
        )
    if row.summarising:
        return strong, "A checkpoint is being made; no turn waits for it."
    if row.has_summary:
        return strong, f"A summary stands for the first {text.plural(row.base, 'turn')}."
    return strong, "No checkpoint has been made."


def figures(seen: Seen, now: datetime) -> list[Figure]:
    """Five: turns, growth, window, cache, checkpoint."""
    row = seen.listed
    window = seen.windows.get(row.model or "")
    share = row.fill(window)
    words = f"{text.count(row.tokens)} of {text.count(window)} tokens" if share is not None else "no answer yet"
    prompt, cached = (sum(getattr(each, name) for each in seen.turns) for name in ("prompt_tokens", "cached_tokens"))
    return [
        figure("Turns", f"{row.version:,}", "", conversations.standing(row)[1].lower()),
        figure(
            "Growth",
            conversations.slope_of(row.slope),
            "tokens a turn" if row.slope is not None else "",
            "over its last turns" if row.slope is not None else "too few turns",
        ),
        figure(
            "Window filled",
            "–" if share is None else text.percent(min(share, 1.0)),
            "" if share is None else "%",
            words,
            colour="warn" if conversations.soon(row, seen.windows) else "",
        ),
        figure(
            "Prompt tokens from cache",
            text.percent(cached / prompt) if prompt else "–",
            "%" if prompt else "",
            "of the turns on this page",
        ),
        figure("Checkpoint", conversations.checkpoint_of(row), "", f"used {times.clock_time(row.used_at, now)}"),
    ]


def drawing(seen: Seen) -> Plot | None:
    """Prompt tokens by turn, below the window. None: fewer than two turns were answered."""
    found = [each for each in reversed(seen.turns) if each.prompt_tokens]
    if len(found) < 2:
        return None
    most = max(each.prompt_tokens for each in found)
    window = seen.windows.get(seen.listed.model or "")
    top = window if window and window <= 4 * most else most
    points = [(n / (len(found) - 1), _TOP * each.prompt_tokens / top) for n, each in enumerate(found)]
    shapes = [plots.area(points, "a-water"), plots.line(points, "l-water")]
    high = 100 - 100 * _TOP
    words = [
        Word(0, 100, f"turn {found[0].n}", 0, 14),
        Word(100, 100, f"turn {found[-1].n}", 0, 14, "end"),
        Word(100, high, f"window, {text.compact(top)}" if top == window else text.compact(most), -4, 13, "end", "k"),
    ]
    limits, caps = ([high], []) if top == window else ([], [high])
    label = (
        f"Prompt tokens of {text.plural(len(found), 'turn')}: {found[0].prompt_tokens:,} to {found[-1].prompt_tokens:,}"
    )
    return Plot(label, shapes, [], caps=caps, limits=limits, words=words)


def _turn(each: ListedTurn, row: Listed, path: str, now: datetime) -> dict[str, Any]:
    sign, words = _STATES[each.state]
    took = (each.finished_at - each.created_at).total_seconds() if each.finished_at and each.model else None
    return {
        "n": f"{each.n:,}",
        "href": f"{path}/turns/{each.n}",
        "sign": sign,
        "words": words if each.model else "added by its owner",
        "sub": ", ".join(_marks(each, row)),
        "model": each.model or "–",
        "prompt": text.count(each.prompt_tokens) if each.prompt_tokens else "–",
        "cached": f"({each.cached_tokens:,})" if each.cached_tokens else "",
        "answer": text.count(each.completion_tokens) if each.completion_tokens else "–",
        "took": times.span(took),
        "created_at": each.created_at,
        "came": times.clock_time(each.created_at, now),
    }


def _marks(each: ListedTurn, row: Listed) -> list[str]:
    found = ["in the summary"] if row.has_summary and each.n <= row.base else []
    if each.shortened:
        found.append("tool output shortened")
    return [*found, "background"] if each.batch else found


def _pages(seen: Seen, params: Mapping[str, str], path: str) -> dict[str, Any]:
    older = address(path, until=str(seen.turns[-1].n)) if seen.more else ""
    newer = path if params.get("until") else ""
    words = f"{text.plural(len(seen.turns), 'turn')}, the newest first"
    return {"names": ("Newest", "Earlier"), "words": words, "newer": newer, "older": older, "cli": ""}


def turn_view(row: Listed, each: ListedTurn, viewer: Viewer, now: datetime) -> dict[str, Any]:
    """What the template of a turn needs, without what was said."""
    sign, _ = _STATES[each.state]
    path = f"{conversations.PATH}/{row.public_id}"
    shown = _turn(each, row, path, now)
    return {
        "n": shown["n"],
        "back": path,
        "conversation_name": name_of(row),
        "sign": sign,
        "strong": f"{text.sentence(shown['words'])}.",
        "rest": f"{text.sentence(shown['sub'])}." if shown["sub"] else "",
        "actions": [_reveal(f"{path}/turns/{each.n}", each)] if viewer.role.reveals else [],
        "how": item.how(viewer),
        "failed": each.state == TurnState.FAILED,
        "prompt_words": f"{each.prompt_tokens:,} tokens with what came before" if each.prompt_tokens else "",
        "answer_words": f"{each.completion_tokens:,} tokens" if each.completion_tokens else "",
        "facts": _facts(row, each),
        "batch": f"/console/batches/{each.batch}" if each.batch else "",
        "revealed": None,
    }


def _facts(row: Listed, each: ListedTurn) -> list[tuple[str, str, bool]]:
    found = [("Response", each.public_id, True), ("Conversation", row.public_id, True), ("Account", row.account, False)]
    if each.model:
        tokens = f"{each.prompt_tokens:,} ({each.cached_tokens:,} cached), {each.completion_tokens:,}"
        found += [("Model", each.model, True), ("Tokens in, out", tokens, False)]
    found.append(("Began", times.iso(each.created_at), False))
    return [*found, ("Ended", times.iso(each.finished_at), False)] if each.finished_at else found


def _reveal(path: str, each: ListedTurn) -> Action:
    words = "You will see what was asked and answered in this turn. The audit log keeps who looked, when, and why."
    title = f"Reveal turn {each.n:,}?"
    return Action("reveal", "Reveal", f"{path}/reveal", title, words, icon="eye", primary=True, reason="Reason")


def revealed(said: Said) -> dict[str, str | None]:
    """What was said, as text."""
    return {"prompt": _items(said.given), "answer": None if said.answered is None else _items(said.answered)}


def _items(found: Sequence[Any]) -> str:
    return "\n\n".join(map(_one, found))


def _one(found: Any) -> str:
    """An item of OpenAI's responses: a message by its role, else JSON."""
    if isinstance(found, Mapping) and found.get("type", "message") == "message" and "content" in found:
        content = found["content"]
        if isinstance(content, list):
            texts = [
                each["text"] for each in content if isinstance(each, Mapping) and isinstance(each.get("text"), str)
            ]
            content = "\n".join(texts) if len(texts) == len(content) else _json(content)
        return f"{found.get('role', '?')}:\n{content if isinstance(content, str) else _json(content)}"
    return found if isinstance(found, str) else _json(found)


def _json(found: Any) -> str:
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
