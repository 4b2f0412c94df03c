"""Learns how long answers without a limit are, for what budgets reserve. Only the leading steward calls this."""

from app.db.pool import Database
from app.metering import lines, long_answers
from app.queue import answer_lengths


async def learn(database: Database) -> None:
    """Learn from the latest batches of accounts that have a budget. Others cost nothing."""
    async with database.relaxed() as conn:
        tenant_ids, models = await long_answers.queued_models(conn)
        if not tenant_ids:
            return
        samples = await answer_lengths.read_samples(conn, tenant_ids, models)
        parts = await lines.parts(conn, sorted({line_id for line_id, _ in samples}))
        of = {line.line_id: line.parts for line in parts}
        found = long_answers.learned((of[line_id], lengths) for line_id, lengths in samples if line_id in of)
        await long_answers.store(conn, found)
