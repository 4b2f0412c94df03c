"""Tables: files, uploads in parts, and the batches made from files, with their output and error files."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from app.db.metadata import metadata
from app.states import FILE, UPLOAD, UploadState

Timestamp = DateTime(timezone=True)


def _key() -> tuple[Column[str], Column[bytes]]:
    """The columns that keep the key of sealed objects."""
    return (
        Column("kek", Text, comment="name of the key at the key provider; null: stored in the clear"),
        Column("wrapped_key", LargeBinary, comment="the data key of its objects, wrapped"),
    )


def _rewrites() -> Column[int]:
    comment = "how often what was stored has been redacted: its content is another one since then"
    return Column("rewrites", Integer, nullable=False, server_default="0", comment=comment)


file = Table(
    "file",
    metadata,
    Column("file_id", Uuid, primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column(
        "state", Text, CheckConstraint(FILE.check(), name="state"), nullable=False, server_default=FILE.initial.value
    ),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("expires_at", Timestamp),
    Column("lines", Integer, nullable=False, comment="number of lines that are not blank"),
    Column("problems", JSONB, comment="errors of its lines, as a batch of the file would list them; null: none"),
    Column(
        "demand",
        JSONB,
        comment="what a batch of the file requests, by model: requests, and tokens as in the class Demand",
    ),
    *_key(),
    _rewrites(),
)
Index("file_kek", file.c.kek, postgresql_where="kek is not null")
Index("file_tenant", file.c.tenant_id, file.c.created_at, file.c.file_id)
Index("file_expiry", file.c.expires_at, postgresql_where="expires_at is not null")

file_batch = Table(
    "file_batch",
    metadata,
    Column("request_id", Uuid, primary_key=True, comment="that of its batch: the id that callers see"),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column(
        "batch_id", BigInteger, ForeignKey("batch.batch_id", ondelete="CASCADE"), comment="null: the batch was refused"
    ),
    Column("input_file_id", Text, nullable=False, comment="as the caller wrote it"),
    Column("endpoint", Text, nullable=False),
    Column("completion_window", Text, nullable=False),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("cancelling_at", Timestamp),
    Column("metadata", JSONB),
    Column("problems", JSONB, comment="why it was refused"),
    Column("output_file_id", Uuid, nullable=False, unique=True),
    Column("error_file_id", Uuid, nullable=False, unique=True),
    Column("output_seconds", Integer, comment="how long its files are kept after its end; null: as long as the batch"),
    Column("output_deleted_at", Timestamp),
    Column("error_deleted_at", Timestamp),
    Column("partial", Boolean, nullable=False, server_default="false", comment="its files can be read while it runs"),
    Column(
        "mixed",
        Boolean,
        nullable=False,
        server_default="false",
        comment="its lines may name several models and endpoints",
    ),
    Column(
        "terms",
        LargeBinary,
        comment="hash of all parameters of the create beside the file; null: not created from a file",
    ),
    Column("output_bytes", BigInteger),
    Column("error_bytes", BigInteger),
    Column("counted_run", SmallInteger, comment="the run whose files have output_bytes and error_bytes"),
    Column(
        "listed_at",
        Timestamp,
        comment="since when its files can be read: its place among all; null: not yet; -infinity: no longer",
    ),
    Column("former_files", ARRAY(Uuid), comment="output and error files of the latest runs before, the last one first"),
    Column("former_at", ARRAY(Timestamp), comment="their places among all, one for each run"),
    _rewrites(),
    CheckConstraint("(batch_id is null) = (problems is not null)", name="refused_or_running"),
)
Index("file_batch_tenant", file_batch.c.tenant_id, file_batch.c.created_at, file_batch.c.request_id)
Index(
    "file_batch_refused",
    file_batch.c.tenant_id,
    file_batch.c.created_at,
    file_batch.c.request_id,
    postgresql_where="batch_id is null",
)
Index("file_batch_batch", file_batch.c.batch_id)
Index(
    "file_batch_listed",
    file_batch.c.tenant_id,
    file_batch.c.listed_at,
    postgresql_where="listed_at > '-infinity'",
)
Index("file_batch_former", file_batch.c.tenant_id, postgresql_where="former_files is not null")
Index(
    "file_batch_unlisted",
    file_batch.c.batch_id,
    postgresql_where="listed_at is null and batch_id is not null",
)

upload = Table(
    "upload",
    metadata,
    Column("upload_id", Uuid, primary_key=True),
    Column("tenant_id", Integer, ForeignKey("tenant.tenant_id"), nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False, comment="size that the caller announced"),
    Column(
        "state",
        Text,
        CheckConstraint(UPLOAD.check(), name="state"),
        nullable=False,
        server_default=UPLOAD.initial.value,
    ),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
    Column("expires_at", Timestamp, nullable=False),
    Column(
        "file_seconds", Float(53), nullable=False, comment="how long the file is kept after the upload was completed"
    ),
    Column("file_id", Uuid),
    CheckConstraint(f"(state = '{UploadState.COMPLETED}') = (file_id is not null)", name="completed"),
    *_key(),
)
Index("upload_kek", upload.c.kek, postgresql_where="kek is not null")
Index("upload_expiry", upload.c.expires_at)

upload_part = Table(
    "upload_part",
    metadata,
    Column("part_id", Uuid, primary_key=True),
    Column("upload_id", Uuid, ForeignKey("upload.upload_id", ondelete="CASCADE"), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Timestamp, nullable=False, server_default=func.now()),
)
Index("upload_part_upload", upload_part.c.upload_id)

object_store = Table(
    "object_store",
    metadata,
    Column("single", Boolean, CheckConstraint("single", name="one"), primary_key=True, server_default="true"),
    Column(
        "marker", Uuid, nullable=False, comment="id of the marker object, which every process must find in its store"
    ),
    Column("writer", Text, nullable=False, comment="the process that wrote the marker, and its host"),
    Column("place", Text, nullable=False, comment="the address of the store, as the writer has it"),
    Column("bodies", Boolean, nullable=False, comment="whether the store may contain bodies of items"),
    Column("made_at", Timestamp, nullable=False, server_default=func.now()),
)
