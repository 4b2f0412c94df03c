"""A running console, `slackwater console` in a process of its own, and those who have signed in to it."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from time import monotonic
from urllib.parse import urlencode

from app import processes
from app.access import sessions
from app.access.roles import Grant, Role
from app.cli.database import on_database
from app.db.pool import Connection
from app.environment import child_environment
from app.settings import Settings
from app.tenants import service as tenants
from benchmarks.harness import end, start, until_healthy

_SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@dataclass(frozen=True)
class Site:
    """A console that listens."""

    settings: Settings
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return self.settings.console_port

    def sign_in(self, role: Role, account: str = "", name: str = "reader") -> str:
        """The cookie of a new session, got by a one-time link as a browser gets it."""

        async def invite(conn: Connection) -> str:
            tenant_id = await tenants.ensure_tenant(conn, account) if role.of_account else None
            return await sessions.invite(conn, Grant(name, role, tenant_id))

        token = on_database(self.settings, invite)
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = _SAME_ORIGIN | {"content-type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/console/login", urlencode({"token": token}), sent)
        answer = connection.getresponse()
        if answer.status != 303:
            raise SystemExit(f"sign-in: {answer.status} {answer.read()[:300]!r}")
        return str(answer.getheader("set-cookie")).split(";")[0]

    def reader(self, cookie: str) -> "PageReader":
        """Somebody who opens pages with this cookie."""
        return PageReader(self.port, cookie)


class PageReader:
    """Opens pages on one connection, as a browser does."""

    def __init__(self, port: int, cookie: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"cookie": cookie, "accept-encoding": "gzip", **_SAME_ORIGIN}

    def get(self, path: str) -> tuple[HTTPResponse, bytes]:
        """The answer and its body as it was sent. Raises SystemExit for any status but 200."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"GET {path}: {answer.status} {body[:500]!r}")
        return answer, body

    def timed(self, path: str) -> float:
        """Milliseconds from the request until the whole page has arrived."""
        began = monotonic()
        self.get(path)
        return (monotonic() - began) * 1e3


@contextlib.contextmanager
def console(settings: Settings) -> Iterator[Site]:
    """`slackwater console` with these settings, until the block ends. If it exits early, its output is shown."""
    own = settings.model_copy(update={"console_port": processes.free_port()})
    log = own.data_dir / "console.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = start([sys.executable, "-m", "app.cli.main", "console"], child_environment(own, {}), log)
    try:
        until_healthy(f"http://127.0.0.1:{own.console_port}/console/health", process)
        yield Site(own, process)
    finally:
        early = process.poll() is not None
        end(process)
        if early:
            raise SystemExit(f"slackwater console ended by itself:\n{log.read_text()[-3000:]}")
