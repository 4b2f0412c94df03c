"""The fields of a form, as browsers send them. There are no files in it: the one page that takes a file reads it as a stream."""

from urllib.parse import parse_qsl

from starlette.datastructures import FormData
from starlette.requests import Request

from app.errors import BadInput, BodyTooLarge, MissingInput

MOST_BYTES = 64 * 1024
_KIND = "application/x-www-form-urlencoded"
_MOST_FIELDS = 2000


async def read(request: Request, most_bytes: int = MOST_BYTES) -> FormData:
    """The fields, of at most so many bytes as they are sent. Raises BodyTooLarge before more is read, MissingInput, BadInput."""
    if request.headers.get("content-type", _KIND).partition(";")[0].strip().lower() != _KIND:
        raise MissingInput(f"A form is sent as {_KIND}", status=415)
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > most_bytes:
            raise BodyTooLarge(f"The form is too large: at most {most_bytes // 1024} KB are accepted")
    try:
        given = parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadInput(f"The form has more than {_MOST_FIELDS:,} fields") from None
    return FormData([(name, value) for name, value in given])
