"""The separate port of operators. With SLACKWATER_ADMIN_PORT, their routes are only there, and the others only at the usual port.

Which port a request came to is what the server knows of the connection, not what the request says.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.envelope import failure, unrouted

OF_OPERATORS = ("/admin/", "/operator/")
ON_BOTH = frozenset({"/health", "/ready", "/version", "/openapi.json", "/docs"})


class Listeners:
    """An ASGI middleware. `admin_port` 0: all routes are at one port."""

    def __init__(self, app: ASGIApp, admin_port: int) -> None:
        self._app, self._admin_port = app, admin_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._admin_port and scope["type"] == "http" and not self._is_here(scope):
            await failure(Request(scope), unrouted(scope["path"]))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_here(self, scope: Scope) -> bool:
        path, server = scope["path"], scope.get("server")
        at_admin = server is not None and server[1] == self._admin_port
        return path in ON_BOTH or path.startswith(OF_OPERATORS) == at_admin
