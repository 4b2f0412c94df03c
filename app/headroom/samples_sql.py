"""The SQL of engine samples."""

MEANS = ("allowance", "batch", "sync", "sync_waiting", "frozen", "kv_usage", "step_ms", "predicted_ms", "allowed_ms")
SUMS = ("seconds", "closed_seconds", "batch_tokens", "sync_tokens", "yields", "evictions")
COLUMNS = ("reason", *MEANS, *SUMS)
_NAMES = ", ".join(COLUMNS)


def _mean(name: str, of: str = "true") -> str:
    return f"sum({name} * seconds) filter (where {of}) / nullif(sum(seconds) filter (where {of} and {name} is not null), 0)"


RECORD = f"""
insert into engine_sample (engine_id, at, {_NAMES})
values (%(engine_id)s, clock_timestamp() - make_interval(secs => %(age)s), {", ".join(f"%({name})s" for name in COLUMNS)})
on conflict do nothing"""

# A mean counts by its seconds. The reason is that of most samples. What a step was allowed to take is told of those with callers,
# if there are any.
_FOLDED = ", ".join(
    (
        "mode() within group (order by reason)",
        *(_mean(name) for name in MEANS[:-1]),
        f"case when sum(sync) > 0 then {_mean('allowed_ms', 'sync > 0')} else {_mean('allowed_ms')} end",
        *(f"sum({name}){'::int8' if name.endswith('_tokens') else ''}" for name in SUMS),
    )
)

FOLD = f"""
with old as (delete from engine_sample
  where at < date_trunc('minute', now() - make_interval(hours => %(hours)s)) returning *)
insert into engine_minute (engine_id, at, {_NAMES})
select engine_id, date_trunc('minute', at) + interval '1 minute', {_FOLDED} from old group by 1, 2
on conflict do nothing"""
DROP = "delete from engine_minute where at < now() - make_interval(days => %(days)s)"


def history(table: str) -> str:
    """An engine's samples since then, in at most `points` stretches of one length, the oldest first. `table`: which samples."""
    return f"""
select max(at), {_FOLDED} from {table}
where engine_id = %(engine_id)s and at >= %(since)s and at <= coalesce(%(until)s::timestamptz, 'infinity')
group by date_bin(make_interval(secs => %(stretch)s), at, 'epoch') order by 1"""


SAMPLES, MINUTES = history("engine_sample"), history("engine_minute")
