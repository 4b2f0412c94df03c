"""Delete what a pipeline contains, at the wish of its owner: the requests and answers of all stages, and its definition.

What stays: the pipeline and its stages with their states, counts and usage.
"""

from uuid import UUID

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.batches import shredding
from app.db.pool import Database
from app.errors import Conflict, NotFound
from app.pipelines import ids, reads, verbs
from app.pipelines import sql as queries
from app.settings import Settings
from app.tenants.service import Tenant


async def shred(database: Database, settings: Settings, tenant: Tenant, request_id: UUID) -> None:
    """Delete the contents of a pipeline that has ended, at once. A repeated call has no effect.

    Once it returns, and after a crash at any point after the commit, nothing of it can be read. Raises NotFound, and Conflict
    unless it has ended.
    """
    name = ids.format_id(request_id)
    async with database.transaction() as conn:
        emptied = await (
            await conn.execute(queries.EMPTY, {"tenant_id": tenant.tenant_id, "request_id": request_id})
        ).fetchone()  # locked: a retry comes before it or after it
        if emptied is None:
            standing = await verbs.standing(conn, tenant.tenant_id, request_id)
            if standing is None:
                raise NotFound(f"No pipeline found with id '{name}'.")
            raise Conflict(f"The pipeline is {standing.state}: cancel it or wait for its end, then delete it")
        pipeline_id, state = emptied
        stages = await reads.stages(conn, pipeline_id)
        found = await shredding.mark_stages(conn, tenant, [stage.request_id for stage in stages])
        if found:
            before = {"state": state, "items": sum(each.total for each in found)}
            await log.record(conn, Record(Act.PIPELINE_SHRED, name, tenant.account_id, before=before))
    for each in found:
        await shredding.clean(database, settings, each)
