"""All SQL of files, uploads in parts, and the batches made from files.

Exception: these statements read `batch` (`app.queue`), because the output files of a batch are a view of its results.
"""

from app.states import BATCH, FILE, UPLOAD, FileState, UploadState

_FILE = "file_id, purpose, filename, bytes, created_at, expires_at, lines, problems, demand"  # as in `service.File`
# The id of an output file: random, and in the cell of its batch, which the third group names (app.cells).
_OUTPUT_ID = "overlay(gen_random_uuid()::text placing substr(b.request_id::text, 15, 4) from 15)::uuid"

# The row expires if its object is not stored in time. It is then removed like any other expired file.
INSERT_FILE = """
insert into file (file_id, tenant_id, purpose, filename, bytes, created_at, expires_at, lines, problems, demand, kek, wrapped_key)
values (%(file_id)s, %(tenant_id)s, %(purpose)s, %(filename)s, %(bytes)s, %(created_at)s,
        now() + make_interval(secs => %(arrival_seconds)s), %(lines)s, %(problems)s, %(demand)s, %(kek)s,
        %(wrapped_key)s)
"""
KEEP_FILE = f"""
update file set state = '{FileState.READY}', expires_at = created_at + make_interval(secs => %(expires_seconds)s)
where file_id = %(file_id)s and {FILE.guard("keep")}
returning {_FILE}, null::uuid, null::boolean, rewrites
"""

_IS_FINAL = f"b.state in ({', '.join(repr(state.value) for state in BATCH.final())})"
_UPLOADS = f"""
select {_FILE}, null::uuid as request_id, null::boolean as of_errors, rewrites from file
where tenant_id = %(tenant_id)s and state = '{FileState.READY}' and (expires_at is null or expires_at > now())"""
# Of final batches, the output and error files that have a line; of running batches, those that were created with partial files.
# A refused batch has no files.
_FILES_OF_BATCH = f"""
join batch b using (batch_id)
cross join lateral (values
  (f.output_file_id, '_output.jsonl', f.output_deleted_at, false, b.ok, f.output_bytes),
  (f.error_file_id, '_error.jsonl', f.error_deleted_at, true, case when {_IS_FINAL} then b.total - b.ok else b.failed end,
   f.error_bytes)
) x (file_id, suffix, deleted_at, of_errors, lines, bytes)
where x.deleted_at is null and case when {_IS_FINAL} then x.lines > 0 else f.partial end
  and coalesce(b.finalized_at + make_interval(secs => f.output_seconds) > now(), true) and b.shredded_at is null"""


def _outputs(created_at: str) -> str:
    return f"""
select x.file_id, 'batch_output' as purpose, f.request_id || x.suffix as filename,
       case when {_IS_FINAL} and f.counted_run = b.run then x.bytes end as bytes, {created_at} as created_at,
       b.finalized_at + make_interval(secs => f.output_seconds) as expires_at, x.lines, null::jsonb as problems,
       null::jsonb as demand, f.request_id, x.of_errors, f.rewrites
from file_batch f {_FILES_OF_BATCH} and f.tenant_id = %(tenant_id)s"""


_CREATED_AT = "coalesce(b.finalized_at, f.created_at)"


GET_FILE = f"""
{_UPLOADS} and file_id = %(file_id)s
union all
select * from ({_outputs(_CREATED_AT)} and %(file_id)s in (f.output_file_id, f.error_file_id)) r where file_id = %(file_id)s"""


def list_files(ascending: bool) -> str:
    """A page of readable files, beyond the place (`after_at`, `after`). Uploads and files of batches are read by an index each,
    from there on. Batches that ended together have the same place there, so the last of a page is read with all that share its.
    """
    order, beyond, begin = ("asc", ">", "-infinity") if ascending else ("desc", "<", "infinity")
    place = f"coalesce(%(after_at)s::timestamptz, '{begin}')"
    place_id = "coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')"
    return f"""
select * from (
  (select * from ({_UPLOADS} and (%(purpose)s::text is null or purpose = %(purpose)s)) u
   where (created_at, file_id) {beyond} ({place}, {place_id})
   order by created_at {order}, file_id {order} limit %(limit)s)
  union all
  (select * from ({_outputs("f.listed_at")} and f.listed_at > '-infinity' and f.listed_at {beyond}= {place}
     and coalesce(%(purpose)s::text = 'batch_output', true)) o
   where (created_at, file_id) {beyond} ({place}, {place_id})
   order by created_at {order} fetch first %(limit)s rows with ties)) r
order by created_at {order}, file_id {order} limit %(limit)s
"""


# The place of an output file, which stays when it is deleted, or replaced by that of another run.
PLACE_OF_OUTPUT = f"""
select {_CREATED_AT} from file_batch f join batch b using (batch_id)
where f.tenant_id = %(tenant_id)s and %(file_id)s::uuid in (f.output_file_id, f.error_file_id)
union all
select former_at[(array_position(former_files, %(file_id)s::uuid) + 1) / 2] from file_batch
where tenant_id = %(tenant_id)s and former_files is not null and %(file_id)s::uuid = any(former_files)"""

# A batch whose row came while it ended was not listed then. What nobody can read any more is no longer looked at.
LIST_LATE = f"""
update file_batch f set listed_at = b.finalized_at from batch b
where f.listed_at is null and f.batch_id is not null and b.batch_id = f.batch_id and {_IS_FINAL}"""
UNLIST = f"""
update file_batch set listed_at = '-infinity' where request_id in (
  select l.request_id from file_batch l join batch e using (batch_id)
  where l.listed_at > '-infinity' and e.finalized_at is not null
    and not exists (select from file_batch f {_FILES_OF_BATCH} and f.request_id = l.request_id) limit %(limit)s)"""


# No file expires at this time, so it marks one that was deleted: its object has no days of grace.
END_UPLOAD = "update file set expires_at = '-infinity' where tenant_id = %(tenant_id)s and file_id = %(file_id)s"
# What is said of a batch that was refused because of its file may quote it.
FORGET_PROBLEMS = """
update file_batch set problems = %(problems)s
where tenant_id = %(tenant_id)s and input_file_id = %(input_file_id)s and problems is not null"""
DELETE_UPLOAD = "delete from file where tenant_id = %(tenant_id)s and file_id = %(file_id)s returning file_id"
HIDE_OUTPUT = """
update file_batch set output_deleted_at = case when output_file_id = %(file_id)s then now() else output_deleted_at end,
                      error_deleted_at = case when error_file_id = %(file_id)s then now() else error_deleted_at end
where tenant_id = %(tenant_id)s and %(file_id)s in (output_file_id, error_file_id)
"""
OUTPUTS_LEFT = f"select from ({_outputs(_CREATED_AT)} and b.request_id = %(request_id)s) r limit 1"
# Only for a final batch and its present run. Sizes of an earlier run are cleared.
SAVE_SIZE = f"""
update file_batch f set counted_run = b.run,
  output_bytes = case when f.output_file_id = %(file_id)s then %(bytes)s when f.counted_run = b.run then f.output_bytes end,
  error_bytes = case when f.error_file_id = %(file_id)s then %(bytes)s when f.counted_run = b.run then f.error_bytes end
from batch b
where b.batch_id = f.batch_id and {_IS_FINAL} and b.run = %(run)s
  and f.tenant_id = %(tenant_id)s and %(file_id)s in (f.output_file_id, f.error_file_id)
"""
STORED_FILES = f"""
select tenant_id, file_id from file where state = '{FileState.READY}' and (expires_at is null or expires_at > now())"""
EXPIRED_FILES = """
select tenant_id, file_id, expires_at = '-infinity' as deleted from file where expires_at <= now() limit %(limit)s"""
# The ids without a row, by the first segment of an object's key.
UNKNOWN = {
    table: f"select id from unnest(%(ids)s::uuid[]) id where not exists (select from {table} where {table}_id = id)"
    for table in ("file", "upload")
}

FORGET_REFUSED = (
    "delete from file_batch where batch_id is null and created_at < now() - make_interval(days => %(days)s)"
)

# ── batches of files ──────────────────────────────────────────────────────────────────────────────────────────────

INSERT_BATCH = """
insert into file_batch (request_id, tenant_id, batch_id, input_file_id, endpoint, completion_window, metadata, problems,
                        output_file_id, error_file_id, output_seconds, partial, mixed, terms, listed_at)
values (%(request_id)s, %(tenant_id)s, %(batch_id)s, %(input_file_id)s, %(endpoint)s, %(completion_window)s, %(metadata)s,
        %(problems)s, %(output_file_id)s, %(error_file_id)s, %(output_seconds)s, %(partial)s, %(mixed)s,
        %(terms)s, case when %(partial)s and %(batch_id)s::int8 is not null then now() end)
"""

_BATCH = """
select f.request_id, f.input_file_id, f.endpoint, f.completion_window, f.created_at, f.cancelling_at, f.metadata, f.problems,
       f.output_file_id, f.error_file_id, f.partial, f.mixed, b.model
from file_batch f left join batch b using (batch_id) where f.tenant_id = %(tenant_id)s
"""
# A file never changes, so a batch of the same file with the same parameters is the same request.
ASKED_ALIKE = """
select from file_batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s
  and input_file_id = %(input_file_id)s and terms = %(terms)s
"""
BATCHES = f"{_BATCH} and f.request_id = any(%(request_ids)s)"
REFUSED = """
select request_id, created_at, metadata, problems from file_batch
where tenant_id = %(tenant_id)s and request_id = any(%(request_ids)s) and problems is not null
"""
# A batch that was not made from a file gets a row when it is first read through OpenAI's API.
ADOPT = f"""
insert into file_batch (request_id, tenant_id, batch_id, input_file_id, endpoint, completion_window, created_at, metadata,
                        output_file_id, error_file_id, listed_at)
select b.request_id, b.tenant_id, b.batch_id, '', b.endpoint,
       coalesce(extract(epoch from b.expires_at - b.opened_at)::int || 's', 'background'), b.created_at, b.meta,
       {_OUTPUT_ID}, {_OUTPUT_ID}, b.finalized_at
from batch b where b.tenant_id = %(tenant_id)s and b.request_id = any(%(request_ids)s) and b.kind in ('batch', 'stage')
on conflict (request_id) do nothing
"""


def refused(metadata: bool) -> str:
    """A page of refused batches, newest first, after (`after_at`, `after`) if that is given."""
    return f"""
select created_at, request_id from file_batch
where tenant_id = %(tenant_id)s and batch_id is null
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(after)s::uuid is null or (created_at, request_id) < (%(after_at)s, %(after)s))
  {"and metadata @> %(metadata)s::jsonb" if metadata else ""}
order by created_at desc, request_id desc limit %(limit)s
"""


REFUSED_AT = """
select created_at from file_batch where tenant_id = %(tenant_id)s and request_id = %(request_id)s and batch_id is null
"""
# Every run has its own files, so that a caller who still reads those of the previous run gets no duplicates and misses nothing.
NEW_FILES = """
update file_batch set output_file_id = %(output_file_id)s, error_file_id = %(error_file_id)s, output_deleted_at = null,
                      error_deleted_at = null, cancelling_at = null, listed_at = case when partial then created_at end,
                      former_files = (array[output_file_id, error_file_id] || former_files)[1:32],
                      former_at = (array_prepend(nullif(listed_at, '-infinity'), former_at))[1:16]
where tenant_id = %(tenant_id)s and request_id = %(request_id)s
"""
CANCELLING = """
update file_batch set cancelling_at = now()
where tenant_id = %(tenant_id)s and request_id = %(request_id)s
"""

# ── files that come in parts ──────────────────────────────────────────────────────────────────────────────────────

_UPLOAD = (
    "upload_id, filename, purpose, bytes, state, created_at, expires_at, file_seconds, file_id, expires_at <= now()"
)

INSERT_UPLOAD = f"""
insert into upload (upload_id, tenant_id, filename, purpose, bytes, expires_at, file_seconds, kek, wrapped_key)
values (%(upload_id)s, %(tenant_id)s, %(filename)s, %(purpose)s, %(bytes)s, now() + make_interval(secs => %(seconds)s),
        %(file_seconds)s, %(kek)s, %(wrapped_key)s)
returning {_UPLOAD}
"""
GET_UPLOAD = f"select {_UPLOAD} from upload where tenant_id = %(tenant_id)s and upload_id = %(upload_id)s"
LOCK_UPLOAD = "select from upload where tenant_id = %(tenant_id)s and upload_id = %(upload_id)s for update"
SUM_OF_PARTS = "select count(*), coalesce(sum(bytes), 0) from upload_part where upload_id = %(upload_id)s"
INSERT_PART = """
insert into upload_part (part_id, upload_id, bytes) values (%(part_id)s, %(upload_id)s, %(bytes)s) returning created_at
"""
DELETE_PART = "delete from upload_part where part_id = %(part_id)s"
PARTS = "select part_id, bytes from upload_part where upload_id = %(upload_id)s"
COMPLETE_UPLOAD = f"""
update upload set state = '{UploadState.COMPLETED}', file_id = %(file_id)s
where tenant_id = %(tenant_id)s and upload_id = %(upload_id)s and {UPLOAD.guard("complete")} and expires_at > now()
returning {_UPLOAD}
"""
CANCEL_UPLOAD = f"""
update upload set state = '{UploadState.CANCELLED}'
where tenant_id = %(tenant_id)s and upload_id = %(upload_id)s and {UPLOAD.guard("cancel")} returning {_UPLOAD}
"""
# A completed upload stays visible for a day.
OLD_UPLOADS = """
select tenant_id, upload_id from upload
where expires_at < now() - make_interval(secs => case when state = 'completed' then 86400 else 0 end) limit %(limit)s
"""
DELETE_UPLOAD_OF_PARTS = "delete from upload where tenant_id = %(tenant_id)s and upload_id = %(upload_id)s"

# ── a deleted account ─────────────────────────────────────────────────────────────────────────────────

FORGET_FILES = tuple(
    f"delete from {table} where {key} in (select {key} from {table} where tenant_id = %(tenant_id)s limit %(limit)s)"
    for table, key in (("file", "file_id"), ("file_batch", "request_id"), ("upload", "upload_id"))
)

# ── the shared object store ──────────────────────────────────────────────────────────────────────────────

# Of a part that died while it marked a store, there is a row without a place.
MARKER = "select marker, writer, place, bodies from object_store where place <> ''"
MARKING = "select pg_advisory_xact_lock(hashtext('slackwater object store'))"
BEGUN = "select marker from object_store where place = ''"
BEGIN_MARK = """
insert into object_store (marker, writer, place, bodies) values (%(name)s, %(writer)s, '', %(bodies)s)
on conflict (single) do update set marker = excluded.marker, writer = excluded.writer, bodies = excluded.bodies
"""
MARK = "update object_store set place = %(place)s where marker = %(name)s"
BODIES = "update object_store set bodies = true"

# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────

FILE_KEY = "select kek, wrapped_key from file where tenant_id = %(tenant_id)s and file_id = %(owner)s"
UPLOAD_KEY = "select kek, wrapped_key from upload where tenant_id = %(tenant_id)s and upload_id = %(owner)s"

# By table: rows whose keys a retired key wraps, and the statement that stores one wrapped anew.
OLD_KEYS = {
    table: (
        f"select {key}, wrapped_key from {table} where kek = %(retired)s limit %(limit)s",
        f"update {table} set kek = %(kek)s, wrapped_key = %(wrapped)s where {key} = %(owner)s and kek = %(retired)s",
    )
    for table, key in (("file", "file_id"), ("upload", "upload_id"))
}

# ── redaction of what is stored ───────────────────────────────────────────────────────────────────────────────────

TO_SEARCH = f"""
select file_id, purpose, filename, bytes, kek, wrapped_key from file
where tenant_id = %(tenant_id)s and state = '{FileState.READY}' and (expires_at is null or expires_at > now()) order by file_id"""
PROBLEMS = """
select 'file', file_id, problems from file where tenant_id = %(tenant_id)s and problems is not null
union all
select 'batch', request_id, problems from file_batch where tenant_id = %(tenant_id)s and problems is not null"""
SCRUB = {
    "file": "update file set problems = %(problems)s where file_id = %(id)s and problems = %(was)s",
    "batch": "update file_batch set problems = %(problems)s where request_id = %(id)s and problems = %(was)s",
}
OPEN_UPLOADS = f"select filename from upload where tenant_id = %(tenant_id)s and state = '{UploadState.PENDING}'"
RESIZE = """
update file set bytes = %(bytes)s, rewrites = rewrites + 1 where tenant_id = %(tenant_id)s and file_id = %(file_id)s"""
# The output files of a batch are of another size once its results are.
FORGET_SIZES = """
update file_batch set output_bytes = null, error_bytes = null, counted_run = null, rewrites = rewrites + 1
where batch_id = %(batch_id)s"""
