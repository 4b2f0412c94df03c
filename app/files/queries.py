"""All SQL on files and the batches made of them."""

from app.states import BATCH

_FILE = "file_id, purpose, filename, bytes, created_at, expires_at, lines, problems"

INSERT_FILE = f"""
insert into file (file_id, tenant_id, purpose, filename, bytes, expires_at, lines, problems)
values (%(file_id)s, %(tenant_id)s, %(purpose)s, %(filename)s, %(bytes)s,
        now() + make_interval(secs => %(expires_seconds)s), %(lines)s, %(problems)s)
returning {_FILE}, null::uuid, null::boolean
"""

_FINAL = ", ".join(f"'{state}'" for state in BATCH.final())


def _readable(upload: str = "true", batch: str = "true") -> str:
    """What can be read: uploads, and of batches that are final the files that have a line. A refused batch has none."""
    return f"""
select {_FILE}, null::uuid as request_id, null::boolean as of_errors from file
where tenant_id = %(tenant_id)s and (expires_at is null or expires_at > now()) and {upload}
union all
select x.file_id, 'batch_output', f.request_id || x.suffix, null, b.finalized_at,
       b.finalized_at + make_interval(secs => f.output_seconds), x.lines, null, f.request_id, x.of_errors
from file_batch f join batch b using (batch_id)
cross join lateral (values
  (f.output_file_id, '_output.jsonl', f.output_deleted_at, false, b.ok),
  (f.error_file_id, '_error.jsonl', f.error_deleted_at, true, b.total - b.ok)
) x (file_id, suffix, deleted_at, of_errors, lines)
where f.tenant_id = %(tenant_id)s and b.state in ({_FINAL}) and x.deleted_at is null and x.lines > 0
  and (f.output_seconds is null or b.finalized_at + make_interval(secs => f.output_seconds) > now()) and {batch}
"""


_ONE = _readable("file_id = %(file_id)s", "%(file_id)s in (f.output_file_id, f.error_file_id)")
GET_FILE = f"select * from ({_ONE}) r where file_id = %(file_id)s"


def list_files(ascending: bool) -> str:
    """A page of what can be read, beyond the file `after`."""
    order, beyond = ("asc", ">") if ascending else ("desc", "<")
    return f"""
with r as ({_readable()})
select * from r where (%(purpose)s::text is null or purpose = %(purpose)s)
  and (%(after)s::uuid is null
       or (created_at, file_id) {beyond} (select a.created_at, a.file_id from r a where a.file_id = %(after)s))
order by created_at {order}, file_id {order} limit %(limit)s
"""


DELETE_UPLOAD = "delete from file where tenant_id = %(tenant_id)s and file_id = %(file_id)s returning file_id"
DELETE_OUTPUT = """
update file_batch set output_deleted_at = case when output_file_id = %(file_id)s then now() else output_deleted_at end,
                      error_deleted_at = case when error_file_id = %(file_id)s then now() else error_deleted_at end
where tenant_id = %(tenant_id)s and %(file_id)s in (output_file_id, error_file_id)
"""
EXPIRED_FILES = "select tenant_id, file_id from file where expires_at < now() limit %(limit)s"

FORGET_REFUSED = (
    "delete from file_batch where batch_id is null and created_at < now() - make_interval(days => %(days)s)"
)

# ── batches of files ──────────────────────────────────────────────────────────────────────────────────────────────

INSERT_BATCH = """
insert into file_batch (request_id, tenant_id, batch_id, input_file_id, endpoint, completion_window, metadata, problems,
                        output_file_id, error_file_id, output_seconds)
values (%(request_id)s, %(tenant_id)s, %(batch_id)s, %(input_file_id)s, %(endpoint)s, %(completion_window)s, %(metadata)s,
        %(problems)s, %(output_file_id)s, %(error_file_id)s, %(output_seconds)s)
"""

_BATCH = """
select f.request_id, f.input_file_id, f.endpoint, f.completion_window, f.created_at, f.cancelling_at, f.metadata, f.problems,
       f.output_file_id, f.error_file_id, b.model
from file_batch f left join batch b using (batch_id) where f.tenant_id = %(tenant_id)s
"""
GET_BATCH = f"{_BATCH} and f.request_id = %(request_id)s"
LIST_BATCHES = f"""
{_BATCH} and (%(after)s::uuid is null or (f.created_at, f.request_id) < (
  select a.created_at, a.request_id from file_batch a where a.tenant_id = %(tenant_id)s and a.request_id = %(after)s))
order by f.created_at desc, f.request_id desc limit %(limit)s
"""
CANCELLING = """
update file_batch set cancelling_at = coalesce(cancelling_at, now())
where tenant_id = %(tenant_id)s and request_id = %(request_id)s
"""
