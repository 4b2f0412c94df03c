"""Causes at the end of our messages are short, and have no codes of libraries."""

import errno

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from app.causes import cause

FAILED = 'connection failed: connection to server at "10.0.0.1", port 5432 failed: FATAL:  '
DENIED = f"""{FAILED}password authentication failed for user "me"
{FAILED}no pg_hba.conf entry for host "10.0.0.2\""""
NO_SOCKET = """connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory
\tIs the server running locally and accepting connections on that socket?"""
SEVERAL = f"""Multiple connection attempts failed. All failures were:
- host: 'localhost', port: '1', hostaddr: '10.0.0.1': {FAILED}the database system is starting up"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"), "no such file or directory"),
        (RuntimeError("[Errno 111] Connection refused"), "Connection refused"),
        (
            psycopg.OperationalError("failed to resolve host 'db': [Errno -2] Name or service not known"),
            "failed to resolve host 'db': Name or service not known",
        ),
        (psycopg.OperationalError(DENIED), '10.0.0.1:5432: password authentication failed for user "me"'),
        (psycopg.OperationalError(NO_SOCKET), "/run/.s.PGSQL.5432: no such file or directory"),
        (psycopg.OperationalError(SEVERAL), "10.0.0.1:5432: the database system is starting up"),
        (psycopg.OperationalError("SSL connection has been closed\nunexpectedly"), "SSL connection has been closed"),
        (PoolTimeout("couldn't get a connection after 30.00 sec"), "no connection within 30 s"),
        (TimeoutError(), "no answer in time"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "it is not UTF-8 text"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_cause_is_one_line_without_codes(error: Exception, said: str) -> None:
    assert cause(error) == said
