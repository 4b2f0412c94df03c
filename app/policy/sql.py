"""The SQL of the policy's versions and of the samples."""

NEWEST_ID = "select max(policy_id) from policy"
FIND = "select policy_id, hash, text, by, at from policy where policy_id = %(policy_id)s"
NEWEST = "select policy_id, hash, text, by, at from policy order by policy_id desc limit %(limit)s"
# Held until the transaction ends, so that of two appliers the second compares with what the first has written.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater policy'))"
ADD = "insert into policy (hash, text, by) values (%(hash)s, %(text)s, %(by)s) returning policy_id, hash, text, by, at"
