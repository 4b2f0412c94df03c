"""`slackwater restored`: what a database needs that was restored to an earlier moment, before parts run on it again."""

from dataclasses import asdict

from app.batches import after_restore
from app.cli import tables
from app.cli.audited import Reason, on_database_recorded
from app.cli.database import on_database
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.db import embedded
from app.db.pool import Connection
from app.files import missing_objects as files
from app.quantities import many
from app.queue import missing_objects as bodies
from app.storage.store import Store


def restored(reason: Reason = None, as_json: Json = False) -> None:
    """Prepare a database that was restored to an earlier moment, before parts run on it again.

    It also lists what the object store lacks.
    """
    settings = configured()

    async def look(conn: Connection) -> tuple[list[tuple[str, int]], list[str]]:
        store = Store.of(settings)
        batches = [(str(request_id), lacking) async for request_id, lacking in bodies.missing(conn, store)]
        return batches, [file_id async for file_id in files.missing(conn, store)]

    with embedded.running(settings):
        tidied = on_database_recorded(settings, after_restore.tidy, reason)
        batches, lost_files = on_database(settings, look)
    if as_json:
        lacks = {"batches": [{"request_id": name, "objects": n} for name, n in batches], "files": lost_files}
        newest = tidied.newest_batch and tidied.newest_batch.isoformat()
        tables.document(console, {**asdict(tidied), "newest_batch": newest, "missing": lacks})
        return
    if tidied.newest_batch:
        console.print(f"The newest batch is of {tidied.newest_batch:%Y-%m-%d %H:%M:%S %Z}.")
    console.print(
        f"{many(tidied.workers, 'worker')} removed, {many(tidied.chunks, 'chunk')} back in the queue, "
        f"{many(tidied.webhooks, 'webhook')} hinted at again."
    )
    if batches or lost_files:
        rows = [*(("batch", *row) for row in batches), *(("file", name, 1) for name in lost_files)]
        tables.show(console, ("lacks objects", "id", "objects"), rows, whole=("id",), numbers=("objects",))
    else:
        console.print("The object store has every object.")
    tables.sentence(console, "Now start the parts.", "green")
