"""What somebody does to a batch. Each action is confirmed on its page, and leaves a row in the audit log."""

from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from app.access.roles import Viewer
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import lifecycle
from app.batches.openai import result_lines
from app.batches.withholding import withholder
from app.console import forms
from app.console.pages import batch
from app.console.pages.acting import attempted, write
from app.console.parts import Parts, parts_of, viewer_of
from app.console.queries import BatchRow
from app.console.views import batch_state
from app.errors import AuthenticationError, NotFound
from app.queue import reads
from app.sealing.keyring import Keyring
from app.storage.store import Store
from app.tenants.service import Tenant

DID = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried"}


def refuse(viewer: Viewer, what: str) -> AuthenticationError:
    """The error of a role that may not do this."""
    return AuthenticationError(f"As {viewer.role} you cannot {what}; ask an admin of the account", status=403)


def account_of(viewer: Viewer, what: str) -> Tenant:
    """The account for which somebody does what only its admins may. Raises AuthenticationError."""
    if not viewer.role.reveals or viewer.tenant_id is None or viewer.account is None:
        raise refuse(viewer, what)
    return Tenant(viewer.tenant_id, viewer.account)


async def act(request: Request) -> Response:
    """Pause, resume, cancel or retry a batch."""
    parts, viewer, verb = parts_of(request), viewer_of(request), str(request.path_params["verb"])
    row = await batch.find_of(request, parts, viewer)
    if verb not in DID:
        raise NotFound("There is no such action")
    if not viewer.role.acts:
        raise refuse(viewer, f"{verb} a batch")
    run = str((await forms.read(request)).get("run", ""))
    await change(parts, viewer, row, verb, int(run) if run.isdecimal() else None)
    return RedirectResponse(f"/console/batches/{row.request_id}?did={DID[verb]}", 303)


async def change(parts: Parts, viewer: Viewer, row: BatchRow, verb: str, of_run: int | None) -> None:
    """Pause, resume, cancel or retry one batch. `of_run`: the run to be retried. Raises SlackwaterError, which is recorded."""
    tenant = batch.owner(row)

    async def do() -> object:
        if verb == "retry":
            return await lifecycle.retry(
                parts.database, parts.settings, parts.queued_catalogue, tenant, row.request_id, of_run
            )
        return await lifecycle.change_state(parts.database, tenant, row.request_id, verb)  # type: ignore[arg-type]

    await attempted(parts, viewer, Act(f"batch.{verb}"), str(row.request_id), row.account, do)


async def download(request: Request) -> Response:
    """The answers so far as a file, for a role that may see them."""
    parts, viewer = parts_of(request), viewer_of(request)
    row = await batch.find_of(request, parts, viewer)
    if not viewer.role.reveals:
        raise refuse(viewer, "download results")
    await write(parts, Record(Act.BATCH_DOWNLOAD, str(row.request_id), row.account))
    price = batch_state.price_of(row, parts.catalogue)
    store, keyring = Store.of(parts.settings), Keyring.of(parts.settings)
    withholding = withholder(row.policy, row.request_id, partial(parts.admission.withheld, row.account))
    items = withholding is not None and withholding.needs_items
    pages = reads.results(parts.reader, row.batch_id, row.run, store=store, keyring=keyring, items=items)
    if withholding is not None:
        pages = withholding.pages(pages, with_items=False)
    lines = result_lines.lines(
        row.request_id, row.state, pages, of_errors=False, price_of=lambda model: price, numbered=True
    )
    name = f"slackwater-{str(row.request_id)[:8]}-results.jsonl"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type="application/octet-stream", headers=headers)


ROUTES = (
    Route("/console/batches/{batch_id}/download", download, methods=["POST"]),
    Route("/console/batches/{batch_id}/{verb}", act, methods=["POST"]),
)
