"""A claim about what the planner's statistics hold."""

from app.queue import partitions
from tests.gpu.world import World

# Columns of bytes that are no contents, so that ANALYZE may keep samples of their values.
HARMLESS = {
    *("request_hash", "secret_hash", "old_secret_hash", "hash", "signature", "terms", "session"),  # hashes
    *(
        "wrapped",
        "wrapped_key",
        "secret",
        "previous_secret",
        "signing_key",
        "previous_signing_key",
    ),  # sealed, and random
    *("first_tokens", "durations", "data"),  # numbers of buckets; events, which hold no prompt and no answer
}
SAMPLED = """
select c.relname, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
  and (a.atttypid = 'bytea'::regtype or (c.relname, a.attname) in (('file', 'problems'), ('file_batch', 'problems')))
  and a.attstattarget is distinct from 0"""


async def test_analyze_keeps_no_values_of_a_column_that_holds_contents(world: World) -> None:
    async with world.database.transaction() as conn:
        await partitions.create(conn, days_ahead=400)
    assert [(table, column) for table, column in await world.fetch(SAMPLED) if column not in HARMLESS] == []
