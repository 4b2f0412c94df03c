"""Charges as rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

https://focus.finops.org/focus-specification/v1-2/ names the columns; custom ones begin with `x_`. A charge is one kind of token
(fresh prompt, cached prompt, answer) of one line on one day.

The list cost is that of synchronous requests on that day; effective, contracted and billed cost are those of the line's own
price, which for queued work may be one of batch, flex or idle work. Nobody is billed here.
"""

import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal

from app.metering import windows
from app.metering.lines import UNQUEUED
from app.metering.money import TokenPrice
from app.metering.reports import Charge

_MILLION = 1_000_000
_PROVIDER = "Slackwater"
_UNIT = "Tokens"
COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
    "x_Endpoint",
    "x_Family",
    "x_Kind",
    "x_Requests",
    "x_Task",
    "x_Variant",
    "x_Workflow",
)


def rows(charge: Charge, listed: TokenPrice | None = None) -> Iterator[dict[str, object]]:
    """The rows of a charge that used tokens; none where the model has no price. The requests are those of the first row.

    `listed`: the price of synchronous requests; None: the charge's own.
    """
    if charge.price is None:
        return
    used, price, listed = charge.counts, charge.price, listed or charge.price
    meters = (
        ("Input tokens", used.prompt - used.cached, price.input, listed.input),
        ("Cached input tokens", used.cached, price.cached, listed.cached),
        ("Output tokens", used.output, price.output, listed.output),
    )
    requests = used.requests
    for meter, tokens, each, list_each in meters:
        if tokens:
            prices = Decimal(each).scaleb(-12), Decimal(list_each).scaleb(-12)
            yield _row(charge, meter, tokens, *prices, requests)
            requests = 0


def _row(
    charge: Charge, meter: str, tokens: int, unit_price: Decimal, list_price: Decimal, requests: int
) -> dict[str, object]:
    assert charge.price is not None
    month = charge.day.replace(day=1)
    sku = f"{charge.model}/{meter.removesuffix(' tokens').lower().replace(' ', '-')}"
    known = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost"), f"{tokens * unit_price:f}"),
        "ContractedUnitPrice": f"{unit_price:f}",
        "ListCost": f"{tokens * list_price:f}",
        "ListUnitPrice": f"{list_price:f}",
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), tokens),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), _UNIT),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), charge.account_id),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), _PROVIDER),
        "BillingAccountType": "Account",
        "BillingCurrency": charge.price.currency,
        "BillingPeriodEnd": _begin(charge, (month + timedelta(days=31)).replace(day=1)),
        "BillingPeriodStart": _begin(charge, month),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{meter} of {charge.model}, {'as called' if charge.kind in UNQUEUED else 'queued'}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _begin(charge, charge.day + timedelta(days=1)),
        "ChargePeriodStart": _begin(charge, charge.day),
        "PricingCategory": "Standard",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "Inference",
        "ServiceSubcategory": "Generative AI",
        "SkuId": sku,
        "SkuMeter": meter,
        "SkuPriceId": f"{sku}@{unit_price * _MILLION:f}",
        **_labels(charge),
        "x_Requests": requests,
    }
    return {name: known.get(name, "") for name in COLUMNS}


def _labels(charge: Charge) -> dict[str, object]:
    """A key is a sub-account, since it can have its own budget. One that is not known is none."""
    key = {"SubAccountId": charge.key_id, "SubAccountName": charge.key_id, "SubAccountType": "API key"}
    tags = {"workflow": charge.workflow, "task": charge.task, "variant": charge.variant, "prompt_family": charge.family}
    return {
        **(key if charge.key_id else {}),
        "Tags": json.dumps({**tags, "critical": str(charge.critical).lower()}),
        "x_Endpoint": charge.endpoint,
        "x_Family": charge.family,
        "x_Kind": charge.kind,
        "x_Task": charge.task,
        "x_Variant": charge.variant,
        "x_Workflow": charge.workflow,
    }


def _begin(charge: Charge, day: date) -> str:
    """When a day of the charge's time zone begins, in UTC, as FOCUS has all times."""
    return f"{windows.start(windows.zone(charge.tz), day):%Y-%m-%dT%H:%M:%SZ}"
