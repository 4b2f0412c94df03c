"""The pages, in the order in which their addresses are tried, and the addresses that are no page.

A further page is a module here with a `PAGE`, a view in `views`, templates, and an entry in `nav.GROUPS`.
"""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from app.console.page import Page
from app.console.pages import (
    actions,
    batch,
    batches,
    engines,
    fairness,
    find,
    incidents,
    item,
    keys,
    login,
    new_batch,
    now,
    signed_in,
    webhooks,
)

PAGES: Sequence[Page] = (
    now.PAGE,
    batches.PAGE,
    signed_in.PAGE,
    batch.PAGE,
    engines.PAGE,
    engines.ONE,
    incidents.PAGE,
    webhooks.PAGE,
    webhooks.ONE,
    webhooks.DELIVERY,
    fairness.PAGE,
    keys.PAGE,
)
ROUTES: Sequence[BaseRoute] = (
    *login.ROUTES,
    *signed_in.ROUTES,
    *new_batch.ROUTES,
    *item.ROUTES,
    *actions.ROUTES,
    *engines.ROUTES,
    *webhooks.ROUTES,
    *keys.ROUTES,
    *find.ROUTES,
)
