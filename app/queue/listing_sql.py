"""The SQL that lists an account's batches, newest first, one page at a time.

There is one statement for each set of filters, so that each gets its own plan. With several models or states, the statement
walks the index once for each and merges the results. No walk reads more than a page. What batches wait for and the classes of
their errors are in tables of their own, which are walked instead, newest batch first; a name is looked up before all else.
"""

from collections.abc import Collection

from app.db.name_prefix import begins

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
    "name": begins("b.name"),
    "tags": "b.tags <> '{}' and b.tags @> %(tags)s::text[]",
    "metadata": "b.meta is not null and b.meta @> %(metadata)s::jsonb",
    "created_after": "b.created_at >= %(created_after)s",
    "created_before": "b.created_at < %(created_before)s",
    "after": "(b.created_at, b.request_id) < (%(after_at)s, %(after)s)",
}
_ORDER = "order by created_at desc, request_id desc limit %(limit)s"
_OWN = "b.tenant_id = %(tenant_id)s and b.kind = 'batch'"

# The tables that are walked in place of an index of batches: their rows of each value, in the order of batch ids, and what their
# batch must be. The planner does not know the values, and would otherwise walk all batches to find few.
_DRIVERS = {
    "waits": (
        "unnest(%(waits)s::text[]) w (value)",
        "select p.* from batch_phase p where p.tenant_id = %(tenant_id)s and p.until is null and p.code = w.value",
        "b.finalized_at is null",
    ),
    "errors": (
        "unnest(%(errors)s::text[]) w (value)",
        "select p.* from batch_error p where p.tenant_id = %(tenant_id)s and p.error = w.value",
        "b.run = i.run and b.failed > 0",
    ),
}
_IN_ANY = {
    "models": "b.model = any(%(models)s)",
    "states": f"exists (select from {_WALKS['states']} where {_WHERE['states']})",
}
_AFTER = "(select a.batch_id from batch a where a.request_id = %(after)s)"

CREATED_AT = (
    "select created_at from batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s and kind = 'batch'"
)


def page(given: Collection[str]) -> str:
    """The statement for the filters of these names. Columns: request_id, created_at, batch_id."""
    if driver := next((name for name in _DRIVERS if name in given), None):
        return _driven(driver, given)
    conditions = [_OWN, *(_WHERE[name] for name in _WHERE if name in given)]
    batches = "batch b"
    if "name" in given:
        named = f"select * from batch b where b.tenant_id = %(tenant_id)s and {_WHERE['name']}"
        batches = f"({named} offset 0) b"
    one = f"select b.request_id, b.created_at, b.batch_id from {batches} where {' and '.join(conditions)} {_ORDER}"
    walks = [walk for name, walk in _WALKS.items() if name in given]
    if not walks:
        return one
    return f"select x.* from {' cross join '.join(walks)} cross join lateral ({one}) x {_ORDER}"


def page_of_accounts(given: Collection[str]) -> str:
    """The same for the accounts %(tenant_ids)s: a page of each, merged. Columns: tenant_id, request_id, created_at."""
    one = page(given).replace("%(tenant_id)s", "t.tenant_id")
    order = "order by z.batch_id desc limit %(limit)s" if any(name in given for name in _DRIVERS) else _ORDER
    return f"""
select t.tenant_id, z.request_id, z.created_at from unnest(%(tenant_ids)s::int[]) t (tenant_id)
cross join lateral ({one}) z {order}"""


def _driven(driver: str, given: Collection[str]) -> str:
    """The statement that walks a table of batch ids. Its order is that of the ids, which batches get when they are submitted."""
    values, ids, condition = _DRIVERS[driver]
    others = ({**_WHERE, **_IN_ANY}[name] for name in _WHERE if name in given and name not in (driver, "after"))
    conditions = " and ".join((_OWN, condition, *others))
    after = f"and p.batch_id < {_AFTER}" if "after" in given else ""
    return f"""
select x.request_id, x.created_at, x.batch_id from (
  select distinct y.batch_id, y.request_id, y.created_at from {values} cross join lateral (
    select b.batch_id, b.request_id, b.created_at from ({ids} {after} order by p.batch_id desc offset 0) i
    cross join lateral (select * from batch b where b.batch_id = i.batch_id and {conditions} offset 0) b
    order by i.batch_id desc limit %(limit)s) y) x
order by x.batch_id desc limit %(limit)s"""
