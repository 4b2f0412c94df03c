"""The SQL of the search: each statement looks keys up, and stops after a few rows."""

from app.db.name_prefix import begins
from app.states import EndpointState

MOST = 6  # of one kind
MOST_TENANTS = 256  # in each of which a name is looked up

_MINE = "(%(tenant_id)s::int is null or {0}.tenant_id = %(tenant_id)s)"
_BATCH = "select b.request_id, coalesce(b.name, ''), t.account_id, b.model, b.state"

BATCHES_BY_ID = f"""
{_BATCH} from batch b join tenant t using (tenant_id)
where b.request_id >= %(id_from)s and b.request_id <= %(id_to)s and b.kind = 'batch' and {_MINE.format("b")} limit {MOST}"""

_NAME_BEGINS = f"name is not null and {begins('name')}"

BATCHES_BY_NAME = f"""
{_BATCH} from (select tenant_id, account_id from tenant t where {_MINE.format("t")} limit {MOST_TENANTS}) t
cross join lateral (select * from batch where tenant_id = t.tenant_id and {_NAME_BEGINS}
  and kind = 'batch' limit {MOST}) b limit {MOST}"""

# What is called exactly so: one look-up by the key of each table.
NAMED = f"""
select 'engine', e.name, e.name, coalesce(p.model, '') from engine e left join pool p using (pool_id) where e.name = %(text)s
union all select 'key', k.key_id, k.name, t.account_id from api_key k join tenant t using (tenant_id)
  where k.key_id = %(text)s and {_MINE.format("k")}
union all select 'account', t.account_id, t.account_id, '' from tenant t where t.account_id = %(text)s and {_MINE.format("t")}"""

PIPELINES_BY_NAME = f"""
select 'pipeline', 'pipe_' || replace(p.request_id::text, '-', ''), p.name, t.account_id
from (select tenant_id, account_id from tenant t where {_MINE.format("t")} limit {MOST_TENANTS}) t
cross join lateral (select * from pipeline where tenant_id = t.tenant_id and {_NAME_BEGINS} limit {MOST}) p limit {MOST}"""

# Pipelines and conversations whose id is in a range.
FLOWS_BY_ID = f"""
(select 'pipeline', 'pipe_' || replace(p.request_id::text, '-', ''), coalesce(p.name, left(p.request_id::text, 8)), t.account_id
 from pipeline p join tenant t using (tenant_id)
 where p.request_id >= %(id_from)s and p.request_id <= %(id_to)s and {_MINE.format("p")} limit {MOST})
union all
(select 'conversation', 'conv_' || replace(s.session_id::text, '-', ''), left(s.session_id::text, 8), t.account_id
 from session s join tenant t using (tenant_id)
 where s.session_id >= %(id_from)s and s.session_id <= %(id_to)s and {_MINE.format("s")} limit {MOST})"""

HOOK = f"""
select 'webhook', replace(e.endpoint_id::text, '-', ''), e.name, t.account_id from endpoint e join tenant t using (tenant_id)
where e.endpoint_id = %(id_from)s and e.state <> '{EndpointState.CLOSING}' and {_MINE.format("e")}"""

DELIVERY = f"""
select 'delivery', replace(e.endpoint_id::text, '-', '') || '/deliveries/' || d.delivery_id, 'delivery ' || d.delivery_id, e.name
from delivery d join endpoint e using (endpoint_id) where d.delivery_id = %(number)s and {_MINE.format("e")}"""

TAGGED = f"""
select exists (select from batch b
  where b.tags <> '{{}}' and b.tags @> array[%(text)s] and b.kind = 'batch' and {_MINE.format("b")})"""
