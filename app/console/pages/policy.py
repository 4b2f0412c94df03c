"""Policy: the rules in force, a dry run of a text on recorded requests, its versions. For the installation's roles."""

from datetime import timedelta

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from app import clock, places
from app.access.roles import Viewer
from app.console import forms
from app.console.page import Page, Params, show
from app.console.pages.actions import refuse
from app.console.parts import Parts, parts_of, viewer_of
from app.console.views import policy
from app.console.views.policy import Seen, Trial
from app.errors import BadInput, NotFound
from app.policy import replay, samples, service
from app.policy.language import MOST_BYTES, parse
from app.policy.problems import PolicyError

_FORM_BYTES = 4 * MOST_BYTES  # a byte of the text takes up to three in a form, a line end six
_BACK = timedelta(days=7)


async def look(parts: Parts, viewer: Viewer, params: Params) -> Seen:
    """A page of the versions, and the one in force with its rules. Raises BadInput.

    Raises NotFound for the roles of an account: rules name accounts.
    """
    if viewer.role.of_account:
        raise NotFound("There is no such page")
    before = places.parsed(params.get("before"), places.number, "before")
    async with parts.reader.relaxed() as conn:
        newest = await service.newest(conn)
        versions = await service.history(conn, policy.SHOWN + 1, before)
    return Seen(newest, parse(newest.text, parts.catalogue) if newest else (), versions)


async def try_out(request: Request) -> Response:
    """Show what a text would have done in the last seven days, and to the open batches. Nothing is stored."""
    parts, viewer = parts_of(request), viewer_of(request)
    if viewer.role.of_account:
        raise NotFound("There is no such page")
    text = await _text(request)
    try:
        rules = parse(text, parts.catalogue)
    except PolicyError as error:
        trial = Trial(text, problems=tuple(map(str, error.problems)))
        return await show(request, PAGE, status=400, **policy.trial_view(trial, viewer))
    async with parts.database.relaxed() as conn:
        recent = replay.replay(rules, await samples.since(conn, clock.now() - _BACK), parts.catalogue)
        waiting = replay.replay(rules, await samples.open_batches(conn), parts.catalogue)
    return await show(request, PAGE, **policy.trial_view(Trial(text, recent, waiting), viewer))


async def apply(request: Request) -> Response:
    """Put a text in force."""
    parts, viewer = _operator(request, "apply a policy")
    text = await _text(request)
    try:
        parse(text, parts.catalogue)
    except PolicyError as error:
        raise BadInput(f"The policy was not applied. {error.problems[0]}") from None
    async with parts.database.transaction() as conn:
        await service.apply(conn, text, parts.catalogue, viewer.subject)
    parts.looks.expire()
    return RedirectResponse("/console/policy?did=applied", 303)


async def roll_back(request: Request) -> Response:
    """Put the text of an earlier version in force again."""
    parts, viewer = _operator(request, "roll the policy back")
    policy_id = int(request.path_params["policy_id"])
    async with parts.database.transaction() as conn:
        try:
            await service.roll_back(conn, policy_id, parts.catalogue, viewer.subject)
        except PolicyError as error:
            raise BadInput(f"Version {policy_id} does not fit the models of today. {error.problems[0]}") from None
    parts.looks.expire()
    return RedirectResponse("/console/policy?did=applied", 303)


def _operator(request: Request, what: str) -> tuple[Parts, Viewer]:
    parts, viewer = parts_of(request), viewer_of(request)
    if viewer.role.of_account:
        raise NotFound("There is no such page")
    if not viewer.role.acts:
        raise refuse(viewer, what)
    return parts, viewer


async def _text(request: Request) -> str:
    text = str((await forms.read(request, _FORM_BYTES)).get("text", "")).replace("\r\n", "\n")
    if len(text.encode()) > MOST_BYTES:
        raise BadInput(f"text: a policy has at most {MOST_BYTES // 1024} KB; shorten it")
    return text


PAGE = Page("policy", policy.PATH, look, policy.view, params=("before",))
ROUTES = (
    Route("/console/policy/test", try_out, methods=["POST"]),
    Route("/console/policy/apply", apply, methods=["POST"]),
    Route("/console/policy/versions/{policy_id:int}/rollback", roll_back, methods=["POST"]),
)
