"""The SQL of account keys, batch keys and the keys of turns."""

ADD_KEK = "insert into account_kek (tenant_id, kek) values (%(tenant_id)s, %(kek)s) on conflict do nothing"
KEK = "select kek from account_kek where tenant_id = %(tenant_id)s"

# A rotation waits for the transactions that have seen the old key as the current one, and rewraps what they wrote.
IS_CURRENT = "select from account_kek where tenant_id = %(tenant_id)s and kek = %(kek)s for share"

ADD_BATCH_KEY = """
insert into batch_key (batch_id, kek, wrapped, only_vaults) values (%(batch_id)s, %(kek)s, %(wrapped)s, %(only_vaults)s)"""
BATCH_KEY = "select kek, wrapped from batch_key where batch_id = %(batch_id)s"
SEALS_BODIES = "select exists (select from batch_key where batch_id = %(batch_id)s and not only_vaults)"
FORGET_BATCH_KEY = "delete from batch_key where batch_id = %(batch_id)s"
NOTE_FAILURE = """
update batch_key set failed_at = now(), failure = %(failure)s
where batch_id = %(batch_id)s and (failure is distinct from %(failure)s or failed_at < now() - interval '5 seconds')"""
# It holds for a minute after the last try, which is longer than the pause between two.
FAILURE = """
select failure, failed_at from batch_key
where batch_id = %(batch_id)s and failed_at > now() - interval '60 seconds'"""

ADD_TURN_KEY = """
insert into turn_key (key_id, tenant_id, kek, wrapped) values (%(key_id)s, %(tenant_id)s, %(kek)s, %(wrapped)s)"""
TURN_KEYS = "select key_id, kek, wrapped from turn_key where key_id = any(%(key_ids)s)"
FORGET_TURN_KEY = "delete from turn_key where key_id = %(key_id)s"
OLD_TURN_KEYS = "select key_id, wrapped from turn_key where kek = %(retired)s order by key_id limit %(limit)s"
REWRAP_TURN_KEY = """
update turn_key set kek = %(kek)s, wrapped = %(wrapped)s where key_id = %(owner)s and kek = %(retired)s"""

# An unfinished rotation is continued: it has a retired key.
ROTATE = """
update account_kek set retired = kek, kek = %(kek)s where tenant_id = %(tenant_id)s and retired is null"""
ROTATION = "select kek, retired from account_kek where tenant_id = %(tenant_id)s"
OLD_BATCH_KEYS = "select batch_id, wrapped from batch_key where kek = %(retired)s order by batch_id limit %(limit)s"
REWRAP_BATCH_KEY = """
update batch_key set kek = %(kek)s, wrapped = %(wrapped)s where batch_id = %(batch_id)s and kek = %(retired)s"""
END_ROTATION = "update account_kek set retired = null where tenant_id = %(tenant_id)s and retired = %(retired)s"
