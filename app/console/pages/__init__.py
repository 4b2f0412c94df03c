"""The pages, in the order in which their addresses are tried, and the addresses that are no page.

A further page is a module here with a `PAGE`, a view in `views`, templates, and an entry in `nav.GROUPS`.
"""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from app.console.page import Page
from app.console.pages import (
    actions,
    audit,
    batch,
    batches,
    budgets,
    conversations,
    duties,
    engines,
    fairness,
    find,
    growth,
    incidents,
    item,
    keys,
    login,
    login_oidc,
    new_batch,
    new_webhook,
    now,
    pipeline,
    pipelines,
    playground,
    policy,
    selection,
    signed_in,
    spend,
    webhooks,
)

PAGES: Sequence[Page] = (
    now.PAGE,
    batches.PAGE,
    pipelines.PAGE,
    conversations.PAGE,
    signed_in.PAGE,
    spend.PAGE,
    growth.PAGE,
    policy.PAGE,
    audit.PAGE,
    batch.PAGE,
    pipeline.PAGE,
    conversations.ONE,
    engines.PAGE,
    engines.ONE,
    incidents.PAGE,
    webhooks.PAGE,
    webhooks.ONE,
    webhooks.DELIVERY,
    fairness.PAGE,
    duties.PAGE,
    keys.PAGE,
)
ROUTES: Sequence[BaseRoute] = (
    *login.ROUTES,
    *login_oidc.ROUTES,
    *selection.ROUTES,
    *batches.ROUTES,
    *signed_in.ROUTES,
    *spend.ROUTES,
    *budgets.ROUTES,
    *policy.ROUTES,
    *playground.ROUTES,
    *new_batch.ROUTES,
    *item.ROUTES,
    *actions.ROUTES,
    *pipeline.ROUTES,
    *conversations.ROUTES,
    *engines.ROUTES,
    *new_webhook.ROUTES,
    *webhooks.ROUTES,
    *keys.ROUTES,
    *find.ROUTES,
)
