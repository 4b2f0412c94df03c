"""Lets the kernel notice soon that the database's host is gone without closing its connections (power loss, split network).

With the defaults of Linux, a connection that waits for an acknowledgement ends after up to 15 minutes, and an idle one after two
hours. Of several hosts, only the primary will do.
"""

from math import ceil
from urllib.parse import urlencode

from psycopg import conninfo

CONNECT_SECONDS = 5  # the timeout of one attempt to connect, at one of several hosts
LEAST_SECONDS = 2.0  # keepalives are set in whole seconds, and a busy server may not answer for one
PROBES = 5


def noticed(url: str, lease_seconds: float) -> str:
    """`url` with parameters by which the loss of the server's host is noticed within a worker's lease, by which an attempt to
    connect ends, and by which, of several hosts, the one is taken that accepts writes.

    Parameters that `url` has already stay as they are. The server also has at most this time to acknowledge what was sent. libpq
    ignores the parameters for a Unix socket.
    """
    seconds = max(LEAST_SECONDS, lease_seconds)
    wanted: dict[str, int | str] = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives": 1,
        "keepalives_idle": ceil(seconds / 2),
        "keepalives_interval": ceil(seconds / 2 / PROBES),
        "keepalives_count": PROBES,
        "tcp_user_timeout": round(1000 * seconds),
    }
    named = conninfo.conninfo_to_dict(url)
    if "," in str(named.get("host", "")):
        wanted["target_session_attrs"] = "read-write"
    missing = {name: value for name, value in wanted.items() if name not in named}
    if not missing:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(missing)}"
