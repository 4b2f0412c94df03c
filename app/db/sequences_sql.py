"""The SQL that lets sequences go on beyond ids that a lost part of the history may have given."""

# Ids of 16 bits, of pools, never leave the database. `last_value` is null where nothing was given yet.
ADVANCE = """
select count(setval(format('%%I.%%I', schemaname, sequencename)::regclass,
                    coalesce(last_value, 0) + case data_type when 'bigint'::regtype then %(wide)s::bigint else %(narrow)s end))
from pg_sequences where schemaname = current_schema() and data_type <> 'smallint'::regtype"""
