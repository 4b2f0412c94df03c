"""A delivered webhook for the tests of verifiers and of sample receivers."""

from app import crypto
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import endpoints
from app.webhooks.egress import Egress
from tests.webhooks.support import Received, emit, receiving, send_due, subscribe
from workers.notifier.delivery import Sender


async def signed_webhook(
    database: Database, settings: Settings, shape: str, *, rotated: bool = False
) -> tuple[Received, list[str]]:
    """A webhook in this format as a receiver got it, and the secrets that sign it: two after a rotation."""
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


def forged_body(got: Received) -> bytes:
    """The body with another outcome, which its signature does not cover."""
    return got.body.replace(b"succeeded", b"failed").replace(b"completed", b"failed")
