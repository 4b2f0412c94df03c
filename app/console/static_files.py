"""The files that pages load. A file's URL has its hash, so a browser keeps it for ever and never has an old one."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
PATH = "/console/static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    kind: str


class StaticFiles:
    """All files of `static`, read once."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._files: dict[str, _File] = {}
        for path in sorted(each for each in FOLDER.rglob("*") if each.suffix in _TYPES):
            body, name = path.read_bytes(), path.relative_to(FOLDER).as_posix()
            url = f"{PATH}/{hashlib.sha256(body).hexdigest()[:_DIGITS]}/{name}"
            self._urls[name] = url
            self._files[url] = _File(body, gzip.compress(body, mtime=0), _TYPES[path.suffix])

    def url(self, name: str) -> str:
        """The path of a file at this server. Raises KeyError."""
        return self._urls[name]

    async def serve(self, request: Request) -> Response:
        """One file, gzipped where the browser takes that."""
        file = self._files.get(request.url.path)
        if file is None:
            return Response(status_code=404)
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.kind, headers=headers | {"content-encoding": "gzip"})
        return Response(file.body, media_type=file.kind, headers=headers)
