"""A multipart form, read while it arrives: small fields, and one file, whose bytes are passed on at once.

python-multipart parses; this class stores the fields that OpenAI's clients send before the file.
"""

from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import BadInput, MissingInput
from app.files import names
from app.openai_codes import OpenAICode

_FIELD_BYTES = 4096
_FIELDS = 32


class Form:
    """Takes blocks and returns the file's bytes; `file` is the name of its field. Fields after the file are read too.

    The constructor raises MissingInput or BadInput where the Content-Type is not that of a form.
    """

    def __init__(self, content_type: str, file: str = "file") -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise MissingInput(
                "Content-Type must be multipart/form-data with a boundary; send a form with a file",
                status=415,
            )
        self._file = file
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self._pieces: list[bytes] = []
        self._header = b""
        self._headers: dict[bytes, bytes] = {}
        self._value = b""
        self._name = ""
        self._value_of_field = b""
        self._in_file = False
        callbacks = {
            "on_part_begin": self._part_begins,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._part_ends,
        }
        try:
            self._parser = MultipartParser(options[b"boundary"], callbacks)  # type: ignore[arg-type]
        except ValueError as error:
            raise BadInput(f"Content-Type: the boundary cannot be used: {error}") from None

    def feed(self, block: bytes) -> bytes:
        """The bytes of the file in this block. Raises BadInput."""
        try:
            self._parser.write(block)
        except ValueError as error:
            raise BadInput(f"The multipart body is malformed: {error}") from None
        piece, self._pieces = b"".join(self._pieces), []
        return piece

    def close(self) -> None:
        """To be called after the last block. Raises BadInput for a body that ends too early."""
        try:
            self._parser.finalize()
        except ValueError as error:
            raise BadInput(f"The multipart body is malformed: {error}") from None
        if self.filename is None:
            message = f"{self._file}: is missing; send the file in this field of the form"
            raise BadInput(message, param=self._file, reason=OpenAICode.MISSING)

    def _part_begins(self) -> None:
        self._headers, self._value_of_field = {}, b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _headers_end(self) -> None:
        given = names.parameters(self._headers.get(b"content-disposition", b""), self._file)
        self._name = given.get("name", b"").decode(errors="replace")
        self._in_file = self._name == self._file
        if self._in_file:
            if self.filename is not None:
                raise BadInput(f"{self._file}: was sent more than once; send one file", param=self._file)
            name = names.among(given, self._file)
            self.filename = "upload" if name is None else name
        elif len(self.fields) >= _FIELDS:
            raise BadInput("The form has too many fields")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._pieces.append(data[start:end])
        else:
            self._value_of_field += data[start:end]
            if len(self._value_of_field) > _FIELD_BYTES:
                raise BadInput(f"{self._name[:60]}: at most {_FIELD_BYTES} bytes")

    def _part_ends(self) -> None:
        if not self._in_file:
            self.fields[self._name] = self._value_of_field.decode(errors="replace")
        self._in_file = False
