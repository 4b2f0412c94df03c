"""The headers of a request as texts in UTF-8. Of a server they come as Latin-1, which garbles what is not ASCII."""

from collections.abc import Iterator, Mapping

from app.errors import BadInput


class HeaderTexts(Mapping[str, str]):
    """Headers by their names in small letters. Reading one that is not in UTF-8 raises BadInput naming it."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        given = self._headers[name]
        if given.isascii():
            return given
        raw = given.encode("latin-1")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            byte = f"the byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8"
            raise BadInput(f"{name}: {byte}; send the header in UTF-8", param=name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)
