"""A receiver of webhooks in its own process. It takes little CPU, because it shares the machine.

    python -m benchmarks.webhooks.receiver

POST /ok/… answers 204. POST /hang/… never answers. GET /report lists the receipts of /ok since the last report, as
[path, webhook-id, time]. The process prints its port when it listens.
"""

import asyncio
import json
import sys
import time

_OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class WebhookReceiver(asyncio.Protocol):
    """Reads HTTP requests with a Content-Length."""

    came: list[tuple[str, str, float]]  # of all connections

    def __init__(self, came: list[tuple[str, str, float]]) -> None:
        self.came = came
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of a new connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request once it is complete."""
        self._got += data
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._got[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            size = int(headers.get("content-length", "0"))
            if len(self._got) < end + 4 + size:
                return
            self._got = self._got[end + 4 + size :]
            self._answer(first.split()[1], headers)

    def _answer(self, path: str, headers: dict[str, str]) -> None:
        if path == "/report":
            body = json.dumps(self.came).encode()
            self.came.clear()
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        elif path.startswith("/ok/"):
            self.came.append((path, headers["webhook-id"], time.time()))
            self._transport.write(_OK)


async def main() -> None:
    """Serve until the process is ended."""
    came: list[tuple[str, str, float]] = []
    server = await asyncio.get_running_loop().create_server(lambda: WebhookReceiver(came), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
