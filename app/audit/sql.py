"""All SQL of the audit log."""

from collections.abc import Collection

NOW = "select clock_timestamp()"

RECORD = """
with written as (
  insert into audit (at, account, act, target, body)
  select * from unnest(%(at)s::timestamptz[], %(account)s::text[], %(act)s::text[], %(target)s::text[], %(body)s::text[])
  returning audit_id)
insert into audit_pending select audit_id from written"""

_ENTRY = "a.audit_id, a.body, s.seq, coalesce(s.seq <= k.seq, false)"
_STATE = """
left join audit_seal s using (audit_id)
left join lateral (
  select seq from audit_checkpoint c where c.account = s.account order by c.seq desc limit 1) k on true"""


def latest(columns: Collection[str]) -> str:
    """The newest rows with the given values of these columns: account, target. Each has an index that is read from its end."""
    wanted = "".join(f" and a.{name} = %({name})s" for name in columns)
    return f"""
select {_ENTRY} from audit a {_STATE}
where (%(before)s::bigint is null or a.audit_id < %(before)s){wanted}
order by a.audit_id desc limit %(limit)s"""


# Left join: a row that is gone before it was sealed is reported, not passed over.
TAKE_PENDING = """
with taken as (
  delete from audit_pending where audit_id in (
    select audit_id from audit_pending order by audit_id limit %(limit)s for update skip locked)
  returning audit_id)
select t.audit_id, coalesce(a.account, ''), a.body from taken t left join audit a using (audit_id) order by t.audit_id"""

HEADS = """
select account, seq, hash from unnest(%(accounts)s::text[]) account
cross join lateral (select seq, hash from audit_seal s where s.account = account.account order by seq desc limit 1) head"""

SEAL = """
insert into audit_seal (account, seq, audit_id, hash)
select * from unnest(%(account)s::text[], %(seq)s::bigint[], %(audit_id)s::bigint[], %(hash)s::bytea[])"""

GAUGES = """
select 'audit_lag_seconds', '', coalesce(extract(epoch from now() - min(a.at)), 0)::float8
from audit_pending p join audit a using (audit_id)"""


def _accounts(table: str) -> str:
    """The chains in a table, found by one step in its index for each."""
    return f"""
  {table}s(account) as (
    (select account from {table} order by account limit 1)
    union all
    select (select t.account from {table} t where t.account > s.account order by t.account limit 1)
    from {table}s s where s.account is not null)"""


# The first row and the head of every chain, its latest checkpoint, the hash that the chain has where that checkpoint was signed,
# and when the first row after it was written.
CHAINS = f"""
with recursive {_accounts("audit_seal")}, {_accounts("audit_checkpoint")},
accounts as (select account from audit_seals where account is not null
             union select account from audit_checkpoints where account is not null)
select a.account, coalesce(b.seq, 0), coalesce(h.seq, 0), coalesce(h.hash, ''::bytea), c.at, c.seq, c.body, k.hash, r.at
from accounts a
left join lateral (select min(seq) as seq from audit_seal s where s.account = a.account) b on true
left join lateral (select seq, hash from audit_seal s where s.account = a.account order by seq desc limit 1) h on true
left join lateral (
  select at, seq, body from audit_checkpoint c where c.account = a.account order by seq desc, at desc limit 1) c on true
left join audit_seal k on k.account = a.account and k.seq = c.seq
left join audit_seal f on f.account = a.account and f.seq = coalesce(c.seq, 0) + 1
left join audit r on r.audit_id = f.audit_id"""

HASHES = """
select s.account, s.seq, s.hash from unnest(%(account)s::text[], %(seq)s::bigint[]) w(account, seq)
join audit_seal s using (account, seq)"""

ADD_CHECKPOINT = """
insert into audit_checkpoint (account, seq, at, cut, body, signature)
values (%(account)s, %(seq)s, %(at)s, %(cut)s, %(body)s, %(signature)s)"""

# What was signed before the retention began, by an hour more than a store is late. The newest row that was signed always stays,
# since the next look compares it.
CUTS = """
with recursive {accounts}
select a.account, s.seq, s.hash from audit_seals a
cross join lateral (select max(c.seq) as seq from audit_checkpoint c where c.account = a.account) newest
cross join lateral (
  select max(c.seq) as seq from audit_checkpoint c
  where c.account = a.account and c.at < now() - make_interval(days => %(days)s, hours => 1)) old
join audit_seal s on s.account = a.account and s.seq = least(old.seq, newest.seq - 1)
where a.account is not null and old.seq is not null""".format(accounts=_accounts("audit_seal"))

CUT = (
    """delete from audit a using audit_seal s
       where s.audit_id = a.audit_id and s.account = %(account)s and s.seq <= %(seq)s""",
    "delete from audit_seal where account = %(account)s and seq <= %(seq)s",
    "delete from audit_checkpoint where account = %(account)s and seq < %(seq)s",
)

SEALED = """
select s.account, s.seq, s.hash, a.audit_id, a.body, a.at, a.account, a.act, a.target
from audit_seal s left join audit a using (audit_id)
where %(account)s::text is null or s.account = %(account)s order by s.account, s.seq"""

HIDES_ROWS = "select row_security_active('audit')"

CHECKPOINTS = """
select account, seq, at, cut, body, signature from audit_checkpoint
where %(account)s::text is null or account = %(account)s order by account, seq, at"""

UNSEALED = """
select audit_id from audit a where not exists (select from audit_seal s where s.audit_id = a.audit_id)
  and at < now() - make_interval(secs => %(seconds)s) and (%(account)s::text is null or coalesce(a.account, '') = %(account)s)
order by audit_id limit 1000"""
