"""The SQL that lists an account's batches, newest first, one page at a time.

There is one statement for each set of filters, so that each gets its own plan. With several models or states, the statement
walks the index once for each and merges the results. No walk reads more than a page.
"""

from collections.abc import Collection

# The same condition as `reads.BatchStatus.started`. It stops at the first row that proves it.
_STARTED = """(b.ok + b.failed > 0
    or exists (select from batch_delta d where d.batch_id = b.batch_id and d.ok + d.failed > 0)
    or exists (select from chunk c where c.batch_id = b.batch_id and c.token > 0))"""
_WALKS = {
    "models": "unnest(%(models)s::text[]) m (model)",
    "states": "unnest(%(states)s::text[], %(started)s::bool[]) s (state, started)",
}
_WHERE = {
    "models": "b.model = m.model",
    "states": f"b.state = s.state and (s.started is null or s.started = {_STARTED})",
    "waits": """b.finalized_at is null and exists (select from batch_phase p
    where p.batch_id = b.batch_id and p.until is null and p.code = any(%(waits)s))""",
    "errors": """b.failed > 0 and exists (select from batch_error e
    where e.batch_id = b.batch_id and e.run = b.run and e.error = any(%(errors)s))""",
    "name": "b.name ~>=~ %(name)s and b.name ~<~ %(name_end)s",
    "tags": "b.tags <> '{}' and b.tags @> %(tags)s::text[]",
    "metadata": "b.meta is not null and b.meta @> %(metadata)s::jsonb",
    "created_after": "b.created_at >= %(created_after)s",
    "created_before": "b.created_at < %(created_before)s",
    "after": "(b.created_at, b.request_id) < (%(after_at)s, %(after)s)",
}
_ORDER = "order by created_at desc, request_id desc limit %(limit)s"

CREATED_AT = (
    "select created_at from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = 'batch'"
)


def page(given: Collection[str]) -> str:
    """The statement for the filters of these names. Columns: request_id, created_at."""
    conditions = [
        "b.tenant_id = %(tenant_id)s",
        "b.kind = 'batch'",
        *(_WHERE[name] for name in _WHERE if name in given),
    ]
    one = f"select b.request_id, b.created_at from batch b where {' and '.join(conditions)} {_ORDER}"
    walks = [walk for name, walk in _WALKS.items() if name in given]
    if not walks:
        return one
    return f"select x.request_id, x.created_at from {' cross join '.join(walks)} cross join lateral ({one}) x {_ORDER}"
