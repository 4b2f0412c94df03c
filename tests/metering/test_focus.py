"""Claims about the FOCUS export: its columns are the specification's, and its rows add up to the cost."""

import json
from datetime import date
from decimal import Decimal

from app.metering import focus, money
from app.metering.money import TokenPrice
from app.metering.reports import Charge
from app.usage_counts import UsageCounts

# Those that FOCUS 1.2 asks of every dataset: https://focus.finops.org/focus-specification/v1-2/
MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "ServiceCategory", "ServiceName", "ServiceSubcategory",
}  # fmt: skip
PRICE = TokenPrice(500_000, 125_000, 2_000_001, "EUR")


def charge(counts: UsageCounts, price: TokenPrice | None = PRICE, tz: str = "UTC") -> Charge:
    day = date(2026, 12, 31)
    labels = ("acme", "key1", "tagging", "extract", True, "b", "-", "toy", "batch", "/v1/chat/completions")
    return Charge(day, *labels, price=price, counts=counts, tz=tz)


def test_every_mandatory_column_is_there_and_further_ones_are_marked() -> None:
    assert set(focus.COLUMNS) >= MANDATORY
    assert list(focus.COLUMNS) == sorted(focus.COLUMNS, key=lambda name: (name.startswith("x_"), name))


def test_the_rows_of_a_charge_add_up_to_its_cost_and_its_tokens() -> None:
    counts = UsageCounts(7, 6, prompt=1003, cached=401, output=77)
    rows = list(focus.rows(charge(counts)))
    assert [(row["SkuMeter"], row["PricingQuantity"]) for row in rows] == [
        ("Input tokens", 602),
        ("Cached input tokens", 401),
        ("Output tokens", 77),
    ]
    exact = sum(Decimal(str(row["BilledCost"])) for row in rows)
    assert abs(exact.scaleb(9) - money.cost(1003, 401, 77, PRICE)) <= Decimal("0.5")
    for row in rows:
        assert Decimal(str(row["ListUnitPrice"])) * int(str(row["PricingQuantity"])) == Decimal(str(row["ListCost"]))
    assert sum(int(str(row["x_Requests"])) for row in rows) == 7


def test_a_charge_names_its_day_its_month_and_its_labels() -> None:
    [row] = focus.rows(charge(UsageCounts(1, 1, output=5)))
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z")
    assert json.loads(str(row["Tags"]))["workflow"] == "tagging"
    assert (row["BillingCurrency"], row["SubAccountId"], row["x_Endpoint"]) == ("EUR", "key1", "/v1/chat/completions")


def test_a_charge_begins_with_the_day_of_its_time_zone_and_says_so_in_utc() -> None:
    [row] = focus.rows(charge(UsageCounts(1, 1, output=5), tz="Europe/Berlin"))
    assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == ("2026-12-30T23:00:00Z", "2026-12-31T23:00:00Z")
    assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == ("2026-11-30T23:00:00Z", "2026-12-31T23:00:00Z")


def test_the_list_cost_is_at_the_price_of_calls_and_every_other_at_the_works_own() -> None:
    calls = TokenPrice(2_000_000, 1_000_000, 8_000_000, "EUR")
    counts = UsageCounts(1, 1, prompt=10, cached=4, output=3)
    for row, own, listed in zip(
        focus.rows(charge(counts), calls),
        (6 * PRICE.input, 4 * PRICE.cached, 3 * PRICE.output),
        (6 * calls.input, 4 * calls.cached, 3 * calls.output),
        strict=True,
    ):
        costs = {name: Decimal(str(row[name])).scaleb(12) for name in row if name.endswith("Cost")}
        assert costs == {"ListCost": listed, **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost"), own)}


def test_a_model_without_a_price_has_no_charges() -> None:
    assert list(focus.rows(charge(UsageCounts(1, 1, 5, 0, 5), None))) == []
