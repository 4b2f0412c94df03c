"""The SQL of lists of pipelines. What a page shows of them is read for that page alone."""

from collections.abc import Collection

from app.db.name_prefix import begins
from app.pipelines.reads_sql import COLUMNS

_WHERE = {
    "tenant_id": "p.tenant_id = %(tenant_id)s",
    "account": "p.tenant_id = (select tenant_id from tenant where account_id = %(account)s)",
    "open": "p.finalized_at is null",
    "ended": "p.finalized_at is not null",
    "state": "p.state = %(state)s",
    "waits": "p.finalized_at is null and p.paused_for = %(waits)s",
    "name": begins("p.name"),
    "id_from": "p.request_id >= %(id_from)s and p.request_id <= %(id_to)s",
}
CONDITIONS = (*_WHERE, "after", "before")
# The order of one account has an index; that of all is the order in which the ids were drawn.
_ORDERS = {True: ("created_at", "pipeline_id"), False: ("pipeline_id",)}


def page(given: Collection[str]) -> str:
    """A page of pipelines with the conditions of these names, newest first; with `before`, those just before it, oldest first."""
    order = _ORDERS["tenant_id" in given or "account" in given]
    conditions = [_WHERE[name] for name in _WHERE if name in given]
    for name, sign in (("after", "<"), ("before", ">")):
        if name in given:
            place = f"select {_columns(order, 'a')} from pipeline a where a.request_id = %({name})s"
            conditions.append(f"({_columns(order, 'p')}) {sign} ({place})")
    way = "asc" if "before" in given else "desc"
    where = f"where {' and '.join(conditions)}" if conditions else ""
    by = ", ".join(f"p.{name} {way}" for name in order)
    return f"""
select p.tenant_id, t.account_id, {COLUMNS}
from (select * from pipeline p {where} order by {by} limit %(limit)s) p join tenant t on t.tenant_id = p.tenant_id
order by {by}"""


def _columns(names: Collection[str], table: str) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


ONE = f"""
select p.tenant_id, t.account_id, {COLUMNS} from pipeline p join tenant t on t.tenant_id = p.tenant_id
where p.request_id = %(request_id)s and (%(tenant_id)s::int is null or p.tenant_id = %(tenant_id)s)"""

# The pipeline of a batch, by its number.
OF_NUMBER = "select request_id, name from pipeline where pipeline_id = %(pipeline_id)s"

# The stages of a page of pipelines, with the folded counts of their batches. The cost is in 10^-12 of the currency.
STAGES = """
select s.pipeline_id, s.n, s.name, b.endpoint <> '', b.finalized_at is not null, b.fed, b.total, b.ok, b.failed,
       case when l.currency is not null then b.cost end, l.currency
from stage s join batch b on b.batch_id = s.batch_id left join line l on l.line_id = b.line_id
where s.pipeline_id = any(%(pipeline_ids)s) order by s.pipeline_id, s.n"""

# The items that workers have, by batch.
MOST_COUNTED = 1000
OPEN = f"""
select count(*)::int from (select from pipeline p where p.finalized_at is null
  and (%(tenant_id)s::int is null or p.tenant_id = %(tenant_id)s) limit {MOST_COUNTED}) o"""
