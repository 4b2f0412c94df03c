"""The cause of an error in a few words, for the end of a message that says in ours what failed, and where. Pure.

"[Errno 2] No such file or directory: '/x'" becomes "no such file or directory".
"""

import re

# What PostgreSQL's library writes of each address that it tries.
_SERVER = re.compile(
    r'connection to server (?:at "([^"]*)"(?: \([^)]*\))?, port (\d+)|on socket "([^"]*)") failed: (.*)'
)
_UNIMPORTANT = re.compile(r"^(?:connection failed: |(?:FATAL|ERROR|PANIC): +)+|\[Errno -?\d+\] ")
_POOL = re.compile(r"couldn't get a connection after ([\d.]+) sec")


def cause(error: BaseException) -> str:
    """One line without codes. Of a connection to PostgreSQL it has the server's address; of a file it has no path."""
    if isinstance(error, OSError) and error.strerror:
        return _lower(error.strerror)
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    text = str(error).strip()
    if waited := _POOL.search(text):
        return f"no connection within {float(waited[1]):g} s"
    if found := _SERVER.search(text):
        host, port, socket, reason = found.groups()
        return f"{socket or f'{host}:{port}'}: {_lower(_UNIMPORTANT.sub('', reason.strip()))}"
    if not text:
        return "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return _UNIMPORTANT.sub("", text.splitlines()[0])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
