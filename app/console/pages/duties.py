"""Duties: when each was last done, how long it took, and when it is next. For the installation's roles."""

from collections.abc import Sequence

from app.access.roles import Viewer
from app.console.page import Page, Params
from app.console.parts import Parts
from app.console.views import duties
from app.duties import standing
from app.duties.standing import Standing
from app.errors import NotFound


async def look(parts: Parts, viewer: Viewer, params: Params) -> Sequence[Standing]:
    """How every duty stands. Raises NotFound for the roles of an account: errors may name hosts."""
    if viewer.role.of_account:
        raise NotFound("There is no such page")
    async with parts.reader.relaxed() as conn:
        return await standing.standings(conn)


PAGE = Page("duties", duties.PATH, look, duties.view, regions=("top", "list"))
