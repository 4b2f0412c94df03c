"""Charges as rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

https://focus.finops.org/focus-specification/v1-2/ names the columns; custom ones begin with `x_`. A charge is one kind of token
(fresh prompt, cached prompt, answer) of one line on one day. Nobody is billed here: the cost is that of the catalogue's prices.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from app.metering.lines import UNQUEUED
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


def rows(charge: Charge) -> Iterator[dict[str, object]]:
    """The rows of a charge that used tokens; none where the model has no price. The requests are those of the first row."""
    if charge.price is None:
        return
    used, price = charge.counts, charge.price
    meters = (
        ("Input tokens", used.prompt - used.cached, price.input),
        ("Cached input tokens", used.cached, price.cached),
        ("Output tokens", used.output, price.output),
    )
    requests = used.requests
    for meter, tokens, each in meters:
        if tokens:
            yield _row(charge, meter, tokens, Decimal(each).scaleb(-12), requests)
            requests = 0


def _row(charge: Charge, meter: str, tokens: int, unit_price: Decimal, requests: int) -> dict[str, object]:
    assert charge.price is not None
    cost = f"{tokens * unit_price:f}"
    month = charge.day.replace(day=1)
    sku = f"{charge.model}/{meter.removesuffix(' tokens').lower().replace(' ', '-')}"
    known = {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), f"{unit_price:f}"),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), tokens),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), _UNIT),
        **dict.fromkeys(("BillingAccountId", "BillingAccountName"), charge.account_id),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), _PROVIDER),
        "BillingAccountType": "Account",
        "BillingCurrency": charge.price.currency,
        "BillingPeriodEnd": _moment((month + timedelta(days=31)).replace(day=1)),
        "BillingPeriodStart": _moment(month),
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{meter} of {charge.model}, {'as called' if charge.kind in UNQUEUED else 'queued'}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _moment(charge.day + timedelta(days=1)),
        "ChargePeriodStart": _moment(charge.day),
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


def _moment(day: datetime) -> str:
    return f"{day:%Y-%m-%dT%H:%M:%SZ}"
