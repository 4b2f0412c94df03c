"""`slackwater migrate`: migrate the database to the newest schema. The embedded server is started for it, unless it runs."""

import asyncio

from rich.console import Console

from app.db import embedded, schema
from app.db import migrate as migrations
from app.db import roles as database_roles
from app.db.pool import Database
from app.queue import partitions
from app.settings import Settings


def migrate(settings: Settings, console: Console, *, roles: bool = False, contract: bool = False) -> None:
    """Run the missing migrations, create today's partitions, and print the database's revision. `roles`: create those, too.
    `contract`: close the database to older versions.

    Where there are roles, their rights are renewed, since there may be new tables.
    """
    with embedded.running(settings):
        _migrate(settings, console, embedded.direct_url(settings), roles=roles, contract=contract)


def _migrate(settings: Settings, console: Console, url: str, *, roles: bool, contract: bool) -> None:
    migrations.upgrade(url)

    async def create_partitions() -> None:
        async with Database(url, size=1) as database, database.transaction() as conn:
            await partitions.create(conn, settings.partition_days_ahead)

    asyncio.run(create_partitions())
    if roles or database_roles.are_used(url):
        names = database_roles.apply(url, settings.report_accounts)
        console.print(f"The roles {', '.join(names)} have their rights; set their passwords as docs/access.md shows.")
    if contract and schema.contract(url):
        console.print(f"Versions below revision {schema.own_revision()} can no longer use the database.")
    console.print(f"The database is at revision {migrations.revisions(url)[0]}.")
