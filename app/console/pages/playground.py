"""Playground: one prompt, at once beside queued. For somebody who may see the answers of an account."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.console import forms, playground, queries
from app.console.page import whole
from app.console.pages.actions import account_of
from app.console.parts import Parts, parts_of, viewer_of
from app.console.playground import Ask
from app.console.views import playground as view
from app.errors import BadInput

PATH = "/console/playground"
_MOST_CHARACTERS = 20_000
_FORM_BYTES = 12 * _MOST_CHARACTERS + 1024  # a character takes up to twelve bytes in a form
_MOST_TOKENS = 1024
_USE = "use the playground"


async def show(request: Request) -> Response:
    """The empty form."""
    parts, viewer = parts_of(request), viewer_of(request)
    account_of(viewer, _USE)
    return await whole(request, "playground", view.empty(parts.models.offered, await _served(parts)), active=PATH)


async def run(request: Request) -> Response:
    """Ask both ways, and show the answers side by side."""
    parts, viewer = parts_of(request), viewer_of(request)
    ask = await _ask(request, parts, account_of(viewer, _USE).account_id)
    at_once, queued = await playground.both(parts.settings, parts.database, ask)
    shown = view.answered(parts.models.offered, await _served(parts), ask, at_once, queued)
    return await whole(request, "playground", shown, active=PATH)


async def _served(parts: Parts) -> list[str]:
    async with parts.reader.relaxed() as conn:
        return await queries.served_models(conn)


async def _ask(request: Request, parts: Parts, account: str) -> Ask:
    form = await forms.read(request, _FORM_BYTES)
    model = parts.catalogue.resolve(str(form.get("model", "")))
    prompt, tokens = str(form.get("prompt", "")).strip(), str(form.get("max_tokens", ""))
    if model is None or model.task != "text-generation":
        raise BadInput("model: choose a model that generates text")
    if not prompt or len(prompt) > _MOST_CHARACTERS:
        raise BadInput(f"prompt: write one of at most {_MOST_CHARACTERS:,} characters")
    if not (tokens.isdecimal() and 1 <= int(tokens) <= _MOST_TOKENS):
        raise BadInput(f"max_tokens: must be a whole number from 1 to {_MOST_TOKENS:,}")
    return Ask(account, model.name, prompt, int(tokens))


ROUTES = (Route(PATH, show), Route(PATH, run, methods=["POST"]))
