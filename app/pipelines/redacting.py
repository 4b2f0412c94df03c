"""Searches the definitions of an account's pipelines for what a rule would redact now. Their items are those of batches."""

from app.admission.redaction import Redaction
from app.admission.stored import Search
from app.batches.redacting import NAMES, NO_KEY, look_at_name
from app.db.pool import Database
from app.errors import KeysUnavailable
from app.pipelines import stored_flow
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring
from app.settings import Settings

_DEFINITIONS = """
select pipeline_id, idempotency_key, definition from pipeline where tenant_id = %(tenant_id)s and definition <> ''"""


async def search_definitions(
    database: Database, settings: Settings, tenant_id: int, redaction: Redaction, search: Search
) -> None:
    """Search them. None is changed: a definition is a program."""
    async with database.relaxed() as conn:
        rows = await (await conn.execute(_DEFINITIONS, {"tenant_id": tenant_id})).fetchall()
    for pipeline_id, key, definition in rows:
        look_at_name(redaction, search, key)
        bodies = StoredBodies(database, Keyring.of(settings), pipeline_id)
        try:
            text = await stored_flow.opened(bodies, definition)
        except KeysUnavailable:
            search.unread(NAMES, NO_KEY)
        else:
            look_at_name(redaction, search, text.decode())
