"""The files that arrive at this moment, so that a page can show what was found in their first lines before their last one came.

They live in this process for as long as their request. Another process, or a file that is complete, knows nothing of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from app.access.roles import Viewer
from app.batches.openai.uploads import IncomingUpload

_LONGEST = 64  # characters of a name that a page gives to its upload
_Key = tuple[int | None, str]


class Arriving:
    """Uploads by the session that sends them and the name that its page gave to each."""

    def __init__(self) -> None:
        self._uploads: dict[_Key, IncomingUpload] = {}

    @contextmanager
    def shown(self, viewer: Viewer, name: str, upload: IncomingUpload) -> Iterator[None]:
        """Show this upload while the block runs. An empty name shows it to nobody."""
        key = (viewer.session_id, name[:_LONGEST])
        if name:
            self._uploads[key] = upload
        try:
            yield
        finally:
            if self._uploads.get(key) is upload:
                del self._uploads[key]

    def find(self, viewer: Viewer, name: str) -> IncomingUpload | None:
        """The upload of this session and name; None: it is complete, or there is none."""
        return self._uploads.get((viewer.session_id, name[:_LONGEST]))
