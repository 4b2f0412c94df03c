"""One item: its tries, its facts, and its prompt and answer as plain text. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from app.access.roles import Role, Viewer
from app.console.queries import BatchRow
from app.console.views import batch_items, text, times
from app.console.views.batch_actions import Action
from app.queue.items import ItemFacts

_HOW = {
    Role.ADMIN: "Reveal it with a reason, which the audit log keeps.",
    Role.VIEWER: "An admin of the account may reveal it, with a reason.",
}
_NEVER = "Roles of the installation never see prompts and answers."


def view(row: BatchRow, tries: Sequence[ItemFacts], viewer: Viewer, now: datetime) -> dict[str, Any]:
    """What the template needs, without bodies."""
    item = next((each for each in reversed(tries) if each.ok), tries[-1])
    sign, words, code = batch_items.outcome(item, row, viewer)
    path = f"/console/batches/{row.request_id}"
    return {
        "seq": f"{item.seq:,}",
        "back": path,
        "batch_name": row.name,
        "reference": text.inert(item.reference or "", 200)[0],
        "sign": sign,
        "strong": _strong(item, row, words, code),
        "rest": _rest(item),
        "failed": item.ok is False,
        "actions": [_reveal(path, item)] if viewer.role.reveals else [],
        "how": how(viewer),
        "prompt_words": _tokens(item),
        "answer_words": f"{item.completion_tokens:,} tokens" if item.completion_tokens else "",
        "tries": _tries(row, tries, viewer),
        "facts": _facts(row, item),
        "revealed": None,
    }


def how(viewer: Viewer) -> str:
    """How a viewer gets to see what is hidden."""
    return _HOW.get(viewer.role, _NEVER)


def _strong(item: ItemFacts, row: BatchRow, words: str, code: str) -> str:
    if item.ok:
        return f"Answered at {times.seconds_time(item.finished_at)}."
    if item.ok is False:
        return f"Failed with {code}: {words.rstrip('.')}."
    if row.is_input:
        return "A line of the input."
    if row.finalized_at:
        return "It did not run."
    return "A worker has it; it may be in the engine." if item.leased else "It waits."


def _rest(item: ItemFacts) -> str:
    if item.ok is None:
        return ""
    tried = item.attempt or 1
    parts = [f"{text.plural(tried, 'try', 'tries')}"]
    if item.yields:
        parts.append(f"made way for synchronous requests {text.plural(item.yields, 'time')}")
    return text.sentence(", ".join(parts)) + "."


def _tokens(item: ItemFacts) -> str:
    if item.ok is None or not item.prompt_tokens:
        return f"about {text.plural(item.est_tokens, 'token')} with its answer"
    cached = f", {item.cached_tokens:,} from the cache" if item.cached_tokens else ""
    return f"{text.plural(item.prompt_tokens, 'token')}{cached}"


def _tries(row: BatchRow, tries: Sequence[ItemFacts], viewer: Viewer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"at": row.created_at, "time": times.seconds_time(row.created_at), "words": "queued with its batch", "sub": ""}
    ]
    for item in tries:
        if item.ok is None:
            continue
        _, words, code = batch_items.outcome(item, row, viewer)
        if item.finished_at and item.ran_ms is not None:
            sent = item.finished_at - timedelta(milliseconds=item.ran_ms)
            where = f"sent to {item.engine}" if item.engine else "sent to an engine"
            found.append({"at": sent, "time": times.seconds_time(sent), "words": where, "sub": _waited(item)})
        if item.finished_at and item.ran_ms is not None and item.first_token_ms is not None:
            first = item.finished_at - timedelta(milliseconds=item.ran_ms - item.first_token_ms)
            after = f"after {times.span(item.first_token_ms / 1000)}"
            found.append({"at": first, "time": times.seconds_time(first), "words": "first token", "sub": after})
        found.append(
            {
                "at": item.finished_at,
                "time": times.seconds_time(item.finished_at),
                "words": f"{words}{f' ({code})' if code else ''}",
                "sub": f"after {times.span(item.ran_ms / 1000)}" if item.ran_ms is not None else f"run {item.run}",
            }
        )
    return found


def _waited(item: ItemFacts) -> str:
    """How long it was queued. Of one that took several tries it is not known when the first was: under a worker that is lost,
    perhaps, or in the same lease.
    """
    if item.queued_ms is None:
        return ""
    span = times.span(item.queued_ms / 1000)
    return f"waited {span}" if (item.attempt or 1) == 1 else f"{span} after its run began, {item.attempt} tries in all"


def _facts(row: BatchRow, item: ItemFacts) -> list[tuple[str, str, bool]]:
    found = [("Model", item.model or row.model, True), ("Endpoint", row.endpoint, True)]
    if item.ok is not None:
        tokens = f"{item.prompt_tokens:,}, {item.completion_tokens or 0:,}" if item.prompt_tokens else "–"
        found.append(("Tokens in, out", tokens, False))
        found.append(("Run", f"{item.run}", False))
        if item.engine:
            found.append(("Engine", item.engine, True))
        found.append(("Yields", f"{item.yields or 0}", False))
    if row.traceparent:
        found.append(("Trace", row.traceparent.split("-")[1], True))
    return found


def _reveal(path: str, item: ItemFacts) -> Action:
    words = "You will see what was asked and answered. The audit log keeps who looked, when, and why."
    return Action(
        "reveal",
        "Reveal",
        f"{path}/items/{item.seq}/reveal",
        f"Reveal item {item.seq:,}?",
        words,
        icon="eye",
        primary=True,
        reason="Reason",
    )


def prompt(body: bytes) -> str:
    """A request as text: the messages of a chat by role, a prompt as it is, else JSON."""
    found = _json(body)
    if found is None:
        return body.decode("utf-8", "replace")
    inner = found.get("body", found)
    inner = inner if isinstance(inner, Mapping) else found
    messages = inner.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(each, Mapping) for each in messages):
        return "\n\n".join(f"{each.get('role', '?')}:\n{_content(each.get('content'))}" for each in messages)
    plain = inner.get("prompt", inner.get("input"))
    return plain if isinstance(plain, str) else _pretty(inner)


def answer(body: bytes) -> str:
    """An answer as text: that of its first choice, else JSON."""
    found = _json(body)
    if found is None:
        return body.decode("utf-8", "replace")
    choices = found.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, Mapping):
        message = first.get("message")
        content = message.get("content") if isinstance(message, Mapping) else first.get("text")
        if isinstance(content, str):
            return content
    plain = found.get("response")
    return plain if isinstance(plain, str) else _pretty(found)


def _content(content: object) -> str:
    return content if isinstance(content, str) else _pretty(content)


def _json(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _pretty(found: object) -> str:
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
