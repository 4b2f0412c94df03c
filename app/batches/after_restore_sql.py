"""The SQL that looks at a database that was restored."""

# Parts name their sessions `slackwater PART`.
PARTS = """
select distinct application_name from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'slackwater %' order by 1"""

NEWEST = "select created_at from batch order by batch_id desc limit 1"
