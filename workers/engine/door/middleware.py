"""The door: an ASGI middleware for vLLM's own server, so that callers keep the engine's URL and batch work still yields to them.

    vllm serve … --middleware slackwater_vllm.door.Door

Requests of our workers and gateways show the door's token and pass with their priority. All others run with priority 0, are
announced to the engine's worker and counted. With SLACKWATER_DOOR_API they also need an API key, have its limits, and may not set
fields of the operator.

A synchronous request must never fail because of the door: each step that raises is counted and skipped. So the door protects
priorities and shares capacity; the engine's own key (`VLLM_API_KEY`) still applies behind it.
"""

import hmac
import logging
from time import monotonic
from typing import Any

from ..http_answer import App, Receive, Scope, Send, answer
from ..private_fields import ENGINE_PRIVATE_FIELDS, ENGINE_PRIVATE_HEADERS, ENGINE_PRIVATE_INSIDE, PRIORITY_HEADER
from . import paths
from .announcer import DoorAnnouncer
from .body import BodyCheck, prompt_tokens
from .keys import DoorKeys, KeyEntry, Refusal
from .paths import Kind
from .settings import OUR_HEADER, DoorSettings
from .usage import DoorUsage
from .visit import DoorVisit, VisitParts

PAGE = "/slackwater/door"
METRICS = f"{PAGE}/metrics"
_LOG_SECONDS = 60.0  # between two tracebacks
_MOST_TOKENS = 4  # that one request may show
_LENGTH_DIGITS = 18  # of a length that a caller states

log = logging.getLogger("vllm.door")  # below vLLM's logger, so that vLLM's handlers print it


class Door:
    """Wraps vLLM's application. `settings`: those of the environment, if not given."""

    def __init__(self, app: App, settings: DoorSettings | None = None) -> None:
        self._app = app
        self._settings = settings = settings or DoorSettings.of()
        self.usage = DoorUsage()
        self._logged = -_LOG_SECONDS
        self._token = b""
        for problem in settings.problems:
            log.error("%s.", problem)
        try:
            self._build(settings)
        except Exception:
            self._fault("start")

    def _build(self, settings: DoorSettings) -> None:
        self._announcer = DoorAnnouncer(settings.token, settings.page_dir, settings.worker)
        self._keys: DoorKeys | None = None
        if settings.api:
            self._keys = DoorKeys(settings.api, settings.token, self._learn_worker, pass_unknown=settings.pass_unknown)
        check = BodyCheck(ENGINE_PRIVATE_FIELDS, ENGINE_PRIVATE_INSIDE) if self._keys else BodyCheck({"priority"})
        self._parts = VisitParts(self.usage, self._announcer, check, settings.most_bytes, self._fault)
        self._token = settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the server."""
        if not self._token or scope["type"] not in ("http", "websocket"):
            await self._app(scope, self._until_shutdown(scope, receive), send)
            return
        ours, kind = self._recognise(scope)
        if (path := paths.path_of(scope)) in (PAGE, METRICS):
            await self._page(path, scope, send, ours=ours)
            return
        if ours or kind is Kind.PASS:
            await self._app(scope, receive, send)
            return
        entry = await self._enter(scope, kind)
        if isinstance(entry, Refusal):
            self.usage.refused[entry.status] += 1
            await answer(scope, send, entry.status, _error(entry), _retry(entry))
            return
        self._protect(scope, entry)
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        visit = DoorVisit(self._parts, scope, receive, send, entry, works=kind is Kind.WORK)
        visit.begin()
        try:
            await self._app(scope, visit.receive, visit.send)
        finally:
            visit.end()

    def _recognise(self, scope: Scope) -> tuple[bool, Kind]:
        """Whether the request is of a worker or a gateway of ours, and what it asks for. Removes the token from its headers."""
        try:
            kind = paths.kind_of(scope.get("method", "GET"), paths.path_of(scope))
            shown = [value for name, value in scope["headers"] if name == OUR_HEADER]
            if not shown:
                return False, kind
            scope["headers"] = [pair for pair in scope["headers"] if pair[0] != OUR_HEADER]
            # While the deployment's secret key is being changed, one token for each key is shown.
            ours = any(hmac.compare_digest(token, self._token) for token in shown[0].split(b",")[:_MOST_TOKENS])
            self.usage.ours += ours
        except Exception:
            self._fault("recognise")
            return False, Kind.PASS  # it may be one of ours, which must neither be refused nor lose its priority
        return ours, kind

    async def _enter(self, scope: Scope, kind: Kind) -> KeyEntry | Refusal | None:
        """The caller's key; None: no key is required, or it could not be checked because of an error in the door."""
        try:
            if self._keys is None:
                return None
            if kind is Kind.OPERATOR:
                return Refusal(403, "Only the operator of the engine may do this")
            headers = dict(scope["headers"])
            size = headers.get(b"content-length", b"")[:_LENGTH_DIGITS]
            tokens = prompt_tokens(int(size) if size.isdigit() else 0) if kind is Kind.WORK else None
            return await self._keys.enter(headers.get(b"authorization", b""), tokens)
        except Exception:
            self._fault("keys")
            return None

    def _protect(self, scope: Scope, entry: KeyEntry | None) -> None:
        """Set priority 0 in the header, which vLLM prefers to the body. With a valid key, show the engine its own."""
        try:
            hidden = ENGINE_PRIVATE_HEADERS if self._keys else {PRIORITY_HEADER}
            headers = [(name, value) for name, value in scope["headers"] if name.lower() not in hidden]
            headers.append((PRIORITY_HEADER, b"0"))
            if entry is not None and self._settings.engine_key:
                headers = [pair for pair in headers if pair[0] != b"authorization"]
                headers.append((b"authorization", f"Bearer {self._settings.engine_key}".encode()))
            scope["headers"] = headers
        except Exception:
            self._fault("headers")

    async def _page(self, path: str, scope: Scope, send: Send, *, ours: bool) -> None:
        """The counters, for who shows the token."""
        if not ours:
            refusal = Refusal(401, f"Show the door's token in the header {OUR_HEADER.decode()}")
            await answer(scope, send, 401, _error(refusal))
        elif path == METRICS:
            await answer(scope, send, 200, self.usage.exposition(), [(b"content-type", b"text/plain; version=0.0.4")])
        else:
            await answer(scope, send, 200, self.usage.document())

    def _until_shutdown(self, scope: Scope, receive: Receive) -> Receive:
        """The lifespan's `receive`, which closes our connections when the server stops."""
        if scope["type"] != "lifespan":
            return receive

        async def receiving() -> Any:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                try:
                    self._announcer.close()
                    if self._keys is not None:
                        await self._keys.close()
                except Exception:
                    self._fault("shutdown")
            return message

        return receiving

    def _learn_worker(self, url: str) -> None:
        if not self._settings.worker:
            self._announcer.worker = url

    def _fault(self, step: str) -> None:
        """Count an error of the door. Called while it is handled."""
        self.usage.faults[step] += 1
        if monotonic() - self._logged >= _LOG_SECONDS:
            self._logged = monotonic()
            log.exception("The door failed at the step %s; the request goes on without it.", step)


def _error(refusal: Refusal) -> dict[str, Any]:
    return {"error": {"message": refusal.message, "type": "slackwater_door", "param": None, "code": refusal.status}}


def _retry(refusal: Refusal) -> list[tuple[bytes, bytes]]:
    return [(b"retry-after", str(refusal.seconds).encode())] if refusal.seconds else []
