"""AIBrix's metadata service in its own environment: `python -m benchmarks.openai_batch.aibrix_service PORT ENGINE_URL SLOTS`.

It is started as its own command starts it, except for the engine. Outside Kubernetes that command has only an echo engine
(`--dry-run`), so the endpoint source of the driver is replaced by the given engine. Its HTTP client opens at most 100
connections; with one for each of 256 slots it was not faster.
"""

import sys

import uvicorn
from aibrix.batch.client import GatewayEndpointSource  # type: ignore[import-not-found]  # not in our environment
from aibrix.metadata import app as metadata  # type: ignore[import-not-found]


def main(port: str, engine_url: str, slots: str) -> None:
    """Serve until killed."""
    service = metadata.build_app(metadata.build_app_args(port=int(port)))
    service.state.batch_driver._endpoint_source = GatewayEndpointSource(engine_url, capacity=int(slots), timeout=60)
    uvicorn.run(service, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
