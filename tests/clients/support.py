"""Sends a webhook to a receiver, for the tests of the samples and of the verifiers."""

from app import crypto
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import endpoints
from app.webhooks.egress import Egress
from tests.webhooks.support import Received, emit, receiving, send_due, subscribe
from workers.notifier.delivery import Sender


async def sent(
    database: Database, settings: Settings, shape: str, *, rotated: bool = False
) -> tuple[Received, list[str]]:
    """Send one webhook in a format. Returns it as it arrived, and the secrets that sign it (two after a rotation)."""
    key = crypto.secret_key(settings)
    with receiving() as receiver:
        async with database.transaction() as conn:
            kinds = ["batch.succeeded"]
            endpoint, secret = await subscribe(conn, settings, receiver.url, shape=shape, kinds=kinds)
            secrets = [secret]
            if rotated:
                values = {"key": key, "tenant_id": 1, "endpoint_id": endpoint.endpoint_id}
                _, keys = await endpoints.rotate_secret(conn, **values, secret=None, overlap_seconds=60)
                secrets.append(keys.secret)
            await emit(conn, 7)
        async with Egress.of(settings) as egress:
            await send_due(Sender(database, egress, key, settings), database)
        return receiver.wait(1)[0], secrets


def forged(got: Received) -> bytes:
    """The body of a webhook with another result."""
    return got.body.replace(b"succeeded", b"failed").replace(b"completed", b"failed")
