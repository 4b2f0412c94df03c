"""Files that hold a key: created once, whole, and readable by their owner only."""

import os
import secrets
from pathlib import Path


def create(path: Path, content: str) -> None:
    """Create the file with this content, unless there is one: of several processes one succeeds, and the others keep its file.

    At the return, the file is on disk. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster; its key is used
    finally:
        draft.unlink()
    sync(path.parent)


def sync(folder: Path) -> None:
    """Write to disk which files the folder has. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
