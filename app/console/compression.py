"""HTML answers, gzipped where their length tells nobody anything.

The length of a gzipped page also shows whether a word of its address occurs in it (the attack is called BREACH). Whoever can make
a browser ask for `/console/find?q=GUESS` with its session again and again, and sees how long the answers are, could find out
names and answers. So only what a page of the console asks for is gzipped, and what the person typed: other sites and other hosts
of this site can cause neither, because the browser itself writes `Sec-Fetch-Site`. There is no token against forged requests to
find out (see `guard`), a nonce is of one answer, and the page with a one-time link does not come from here. Streams and downloads
are not gzipped: an event must leave at once.
"""

import gzip

from starlette.requests import Request
from starlette.responses import Response

_OWN = frozenset({"same-origin", "none"})  # none: the address bar, a bookmark
_LEVEL = 6
_LEAST_BYTES = 1000


def html(request: Request, text: str, status: int = 200) -> Response:
    """The page, gzipped if the browser takes that and nobody else has caused the request."""
    body = text.encode()
    headers = {"vary": "accept-encoding, sec-fetch-site"}
    if len(body) >= _LEAST_BYTES and _caused_here(request) and _takes_gzip(request):
        body = gzip.compress(body, _LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers, media_type="text/html")


def _caused_here(request: Request) -> bool:
    return request.headers.get("sec-fetch-site") in _OWN


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")
