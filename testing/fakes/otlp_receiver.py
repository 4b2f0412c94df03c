"""A collector that takes OTLP over HTTP, in a thread or as `python -m testing.fakes.otlp_receiver`, and keeps the spans."""

import argparse
import gzip
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.tracing import names


@dataclass(frozen=True)
class Seen:
    """A span as it arrived. Ids are hex; `parent` is empty for the first span of a trace. Times are nanoseconds."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    moments: list[str]


@dataclass
class Receiver:
    """Spans by arrival. `status`: what it answers."""

    port: int = 0
    status: int = 200
    spans: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Seen]:
        """The spans of this name, or whose name begins with it and a space."""
        return [span for span in list(self.spans) if span.name == name or span.name.startswith(f"{name} ")]

    def failed_items(self) -> set[tuple[str, int]]:
        """Batch and position of each failed item that a span is about or lists."""
        found = set()
        for span in list(self.spans):
            batch, listed = span.attributes.get(names.BATCH, ""), span.attributes.get(names.UNTOLD_ITEMS, [])
            own = [span.attributes[names.ITEM]] if span.failed and names.ITEM in span.attributes else []
            found |= {(batch, seq) for seq in (*own, *listed)}
        return found


def decoded(body: bytes) -> Iterator[Seen]:
    """The spans of an OTLP request."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    service,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == 2,
                    _values(span.attributes),
                    [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    [event.name for event in span.events],
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """A collector on a loopback port until the block is left."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if found.status == 200 and self.path == "/v1/traces":
                found.spans.extend(decoded(body))
            self.send_response(found.status if self.path == "/v1/traces" else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Print the URL, and then for each line of stdin the number of spans and of the failed items that they tell of."""
    parser = argparse.ArgumentParser(description="A collector without a store.")
    parser.add_argument("--port", type=int, default=0)
    with receiver(parser.parse_args().port) as found:
        print(found.url, flush=True)
        for _ in sys.stdin:
            print(len(found.spans), len(found.failed_items()), flush=True)


if __name__ == "__main__":
    main()
