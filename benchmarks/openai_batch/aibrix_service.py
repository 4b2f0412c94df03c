"""AIBrix's metadata service, in its own environment: `python -m benchmarks.openai_batch.aibrix_service PORT ENGINE_URL SLOTS`.

Started as its command starts it, but for the engine. Outside Kubernetes its command line has only an echo (`--dry-run`), so the
engine's address is put where that echo would be, the driver's endpoint source, with a connection for each slot, of which its own
client would keep 20 and open 100.
"""

import sys

import httpx
import uvicorn
from aibrix.batch.client import GatewayEndpointSource  # type: ignore[import-not-found]  # not in our environment
from aibrix.metadata import app as metadata  # type: ignore[import-not-found]


def main(port: str, engine_url: str, slots: str) -> None:
    """Serve until killed."""
    service = metadata.build_app(metadata.build_app_args(port=int(port)))
    source = GatewayEndpointSource(engine_url, capacity=int(slots), timeout=60)
    limits = httpx.Limits(max_connections=int(slots), max_keepalive_connections=int(slots))
    source._channel._client = httpx.AsyncClient(limits=limits)
    service.state.batch_driver._endpoint_source = source
    uvicorn.run(service, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
