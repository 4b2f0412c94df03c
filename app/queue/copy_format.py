"""Rows in PostgreSQL's binary COPY format. They are encoded while a body arrives, so that the transaction only sends bytes. Pure.

Format: PostgreSQL documentation, COPY, "Binary Format".
"""

import struct
from collections.abc import Iterable

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
TRAILER = struct.pack("!h", -1)

_NULL = struct.pack("!i", -1)
_TRUE, _FALSE = struct.pack("!i?", 1, True), struct.pack("!i?", 1, False)
_HEAD = struct.Struct("!hiqii")  # 12 fields; batch_id int8; seq int4
_INT4 = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")


def payload_row(
    batch_id: int,
    seq: int,
    reference: str | None,
    affinity: str | None,
    est_tokens: int,
    body: bytes,
    *,
    wants_json: bool = False,
    stored: bool = False,
    model: str | None = None,
    endpoint: str | None = None,
    vault: bytes | None = None,
    line_id: int | None = None,
) -> bytes:
    """One `item_payload` row in the column order of `submit_sql.COPY_PAYLOAD`.

    Without `model` or `endpoint` the item uses its batch's. `stored`: `body` is the key of the object that holds the body.
    `vault`: the sealed values of its placeholders; None: it has none. `line_id`: at whose price a rule gave it its model; None:
    that of its batch, or of one of its batch's models.
    """
    return b"".join(
        (
            _HEAD.pack(12, 8, batch_id, 4, seq),
            _text(reference),
            _text(model),
            _text(endpoint),
            _text(affinity),
            _INT4.pack(4, est_tokens),
            _TRUE if wants_json else _FALSE,
            _TRUE if stored else _FALSE,
            _LENGTH.pack(len(body)),
            body,
            _NULL if vault is None else _LENGTH.pack(len(vault)) + vault,
            _NULL if line_id is None else _INT4.pack(4, line_id),
        )
    )


def whole(rows: Iterable[bytes]) -> bytes:
    """The data of a COPY of these rows, in one piece."""
    return b"".join((HEADER, *rows, TRAILER))


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    data = value.encode()
    return _LENGTH.pack(len(data)) + data
