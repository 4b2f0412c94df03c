"""What a search found. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from app.batches.lookups import Found, FoundBatch
from app.console.views import text
from app.console.views.batches import few

PATH = "/console/find"
_PLACES = {
    "engine": ("engines", "Engine", "/console/engines/{0}"),
    "key": ("keys", "Key", "/console/keys?view=all#key-{0}"),
    "webhook": ("hooks", "Webhook", "/console/webhooks/{0}"),
    "pipeline": ("flow", "Pipeline", "/console/pipelines/{0}"),
    "conversation": ("talk", "Conversation", "/console/conversations/{0}"),
    "delivery": ("hooks", "Delivery", "/console/webhooks/{0}"),
}


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that was found, and where it is."""

    icon: str
    kind: str
    name: str
    sub: str
    href: str


def hits(batches: Sequence[FoundBatch], others: Sequence[Found], tag: str) -> list[Hit]:
    """Everything that was found. `tag`: a tag that batches have; empty: none has."""
    found = [_other(each) for each in others] + [_batch(each) for each in batches]
    if tag:
        query = urlencode({"view": "all", "q": f"tag:{tag}"})
        found.append(
            Hit("batches", "Tag", text.inert(tag, 120)[0], "batches with this tag", f"/console/batches?{query}")
        )
    return found


def _batch(each: FoundBatch) -> Hit:
    short = text.short(each.request_id)
    sub = (
        f"{short}, {each.account}, {each.model}, {each.state}"
        if each.name
        else f"{each.account}, {each.model}, {each.state}"
    )
    return Hit("batches", "Batch", text.inert(each.name or short, 120)[0], sub, f"/console/batches/{each.request_id}")


def _other(each: Found) -> Hit:
    if each.kind == "account":
        query = urlencode({"view": "all", "q": f"account:{each.identity}"})
        return Hit("batches", "Account", each.name, "its batches", f"/console/batches?{query}")
    icon, kind, place = _PLACES[each.kind]
    identity = each.identity if each.kind == "delivery" else quote(each.identity, safe="")
    sub = f"{each.identity}, {each.of}" if each.kind == "key" else each.of
    return Hit(icon, kind, text.inert(each.name, 120)[0], text.inert(sub, 200)[0], place.format(identity))


def view(asked: str, found: Sequence[Hit]) -> dict[str, Any]:
    """What the template needs."""
    shown = text.inert(asked, 200)[0]
    if not asked:
        return {"title": "Find anything", "rest": "", "hits": [], "asked": ""}
    if not found:
        return {"title": f"Nothing is called {shown}", "rest": "", "hits": [], "asked": shown}
    number = text.sentence(few(len(found)))
    title = (
        f"{number} {'thing begins with or is called' if len(found) == 1 else 'things begin with or are called'} {shown}"
    )
    return {"title": title, "rest": "", "hits": found, "asked": shown}
