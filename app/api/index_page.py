"""The pages for a person who has only the address: the index, the version, and the documentation of all routes."""

from functools import cache
from html import escape
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from app.api import docs_page

router = APIRouter()

_DESCRIPTION = "Durable batch inference in the slack of your GPUs"


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    """A description and links: a page for a browser, JSON for other clients."""
    links = {
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "openai_base_url": "/v1",
        "workers_ai_base_url": "/client/v4/accounts/{account_id}/ai",
        "health": "/health",
        "ready": "/ready",
        "status": "/status",
        "metrics": "/metrics",
        "version": "/version",
    }
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_page(request.app, links), headers={"vary": "accept"})
    content = {"name": "slackwater", "description": _DESCRIPTION, "version": request.app.version, "links": links}
    return Response(orjson.dumps(content), media_type="application/json", headers={"vary": "accept"})


@router.head("/version", include_in_schema=False)
@router.get("/version")
async def version(request: Request) -> dict[str, str]:
    """The version of Slackwater."""
    return {"name": "slackwater", "version": request.app.version}


@router.get("/docs", include_in_schema=False)
async def documentation(request: Request) -> HTMLResponse:
    """Every route with its parameters and an example, in one page without external resources."""
    return HTMLResponse(_documentation(request.app))


@cache
def _documentation(app: FastAPI) -> str:
    document: dict[str, Any] = app.openapi()
    return docs_page.render(document)


def _page(app: FastAPI, links: dict[str, str]) -> str:
    shown = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{_link(target)}</td></tr>" for name, target in links.items()
    )
    body = f"<h1>Slackwater</h1><p>{_DESCRIPTION}. Version {escape(app.version)}.</p><table>{shown}</table>"
    return docs_page.page("Slackwater", body)


def _link(target: str) -> str:
    """A link to a route that a browser can open without a key; other routes as text."""
    if target == "/v1" or "{" in target:
        return f"<code>{escape(target)}</code>"
    return f'<a href="{escape(target)}"><code>{escape(target)}</code></a>'
