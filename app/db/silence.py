"""How soon a connection is given up whose other end has gone without a word: a host without power, a network cut in two.

The kernel sees to it, and left to itself takes up to a quarter of an hour for what was sent, and two hours for who only listens.
"""

from math import ceil
from urllib.parse import urlencode

from psycopg import conninfo

LEAST_SECONDS = 2.0  # keepalives are counted in seconds, and a busy server may be silent for one
PROBES = 5


def noticed(url: str, lease_seconds: float) -> str:
    """`url`, by which a silent end is noticed within a worker's lease. What it says itself of these parameters stays.

    A server is given that long to take what it is sent, too. A Unix socket needs none of this, and libpq ignores it there.
    """
    seconds = max(LEAST_SECONDS, lease_seconds)
    wanted = {
        "keepalives": 1,
        "keepalives_idle": ceil(seconds / 2),
        "keepalives_interval": ceil(seconds / 2 / PROBES),
        "keepalives_count": PROBES,
        "tcp_user_timeout": round(1000 * seconds),
    }
    named = conninfo.conninfo_to_dict(url)
    missing = {name: value for name, value in wanted.items() if name not in named}
    if not missing:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(missing)}"
