"""Claims about rate cards: which price holds for which kind of work at which moment, and what a card may not say."""

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from app import clock
from app.db.pool import Database
from app.engines import catalogue
from app.engines.model_registry import ModelRegistry
from app.engines.rate_card import Work
from app.metering import documents

SIMPLE = "[models.tiny]\ncontext_window = 128\nprice = { input = 8, cached_input = 1, output = 16 }\n"


def rate(work: str, price: str, begins: str = "") -> str:
    dated = f"from = {begins}\n" if begins else ""
    return f"[[models.tiny.prices]]\nwork = [{work}]\n{dated}input = {price}\ncached_input = 0\noutput = 1\n"


CARD = (
    SIMPLE
    + rate('"batch"', "4")
    + rate('"sync", "flex"', "10", "2026-12-01")
    + rate('"idle"', "2.000001", "2026-12-01T00:00:00+01:00")
)


def load(tmp_path: Path, text: str) -> catalogue.Catalogue:
    path = tmp_path / "models.toml"
    path.write_text(text)
    catalogue.load.cache_clear()
    return catalogue.load(path)


def price(found: catalogue.Catalogue, work: Work, at: str, name: str = "tiny") -> str | None:
    model = found.priced(work, datetime.fromisoformat(at)).models[name]
    return str(model.price.input) if model.price else None


def test_a_model_with_one_price_has_it_for_all_work_at_all_times(tmp_path: Path) -> None:
    found = load(tmp_path, SIMPLE)
    assert found.priced(Work.IDLE, clock.now()) is found
    assert [price(found, work, "2030-01-01T00:00Z") for work in Work] == ["8"] * 4


@pytest.mark.parametrize(
    ("at", "prices"),
    [
        ("2026-11-30T22:59Z", {"sync": "8", "flex": "8", "batch": "4", "idle": "4"}),
        ("2026-11-30T23:00Z", {"sync": "8", "flex": "8", "batch": "4", "idle": "2.000001"}),
        ("2026-12-01T00:00Z", {"sync": "10", "flex": "10", "batch": "4", "idle": "2.000001"}),
    ],
)
def test_each_kind_of_work_has_its_price_from_its_date_on_else_that_of_the_kind_it_is_like(
    tmp_path: Path, at: str, prices: dict[str, str]
) -> None:
    found = load(tmp_path, CARD)
    assert {str(work): price(found, work, at) for work in Work} == prices


def test_a_card_without_a_price_for_today_has_none_before_its_first_date(tmp_path: Path) -> None:
    bare = SIMPLE.replace("price = { input = 8, cached_input = 1, output = 16 }\n", "")
    found = load(tmp_path, bare + rate('"sync"', "8", "2026-12-01"))
    assert price(found, Work.BATCH, "2026-11-30T23:59Z") is None
    assert price(found, Work.BATCH, "2026-12-01T00:00Z") == "8"


def test_a_name_with_a_price_of_its_own_does_not_take_the_dates_of_the_model_behind_it(tmp_path: Path) -> None:
    same, own = '[models.same]\nserves = "tiny"\n', '[models.own]\nserves = "tiny"\n'
    found = load(tmp_path, CARD + same + own + "price = { input = 7, cached_input = 0, output = 1 }\n")
    late = "2027-01-01T00:00Z"
    assert [price(found, Work.SYNC, late, name) for name in ("same", "own")] == ["10", "7"]
    assert price(found, Work.BATCH, late, "own") == "7"


def test_a_price_holds_on_its_day_in_a_process_that_has_read_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    found = load(tmp_path, SIMPLE + rate('"sync"', "9", f"{now + timedelta(days=2):%Y-%m-%d}"))
    models = ModelRegistry(Database("postgresql://nowhere"), found)

    def seen() -> Decimal | None:
        known = models.current.models["tiny"].price
        return known and known.input

    assert seen() == 8
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=2))
    assert seen() == 9


def test_the_card_says_from_when_until_when_each_price_holds(tmp_path: Path) -> None:
    rows = documents.prices(load(tmp_path, CARD).models["tiny"])
    day, berlin = "2026-12-01T00:00:00.000+00:00", "2026-11-30T23:00:00.000+00:00"
    assert [(row["work"], row["from"], row["until"], row["input"]) for row in rows] == [
        ("sync", None, day, 8),
        ("sync", day, None, 10),
        ("flex", None, day, 8),
        ("flex", day, None, 10),
        ("batch", None, None, 4),
        ("idle", None, berlin, 4),
        ("idle", berlin, None, 2.000001),
    ]
    assert {row["currency"] for row in rows} == {"USD"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (rate('"sync"', "1"), "prices: sync work has two prices that hold always"),
        (rate('"idle", "batch"', "1", "2026-12-01") + rate('"idle"', "2", "2026-12-01"), "idle work has two prices"),
        (rate('"idle"', "1") + 'currency = "EUR"\n', "prices: one is in EUR, another in USD"),
        (rate('"night"', "1"), "work: must be 'sync', 'flex', 'batch' or 'idle', not 'night'"),
        (rate("", "1"), "must name some kinds of work, each once"),
        (rate('"idle"', "1", '"2026-12-01"'), "must be a day, without quotes"),
        (rate('"idle"', "1", "2026-12-01T00:00:00"), "a time needs an offset"),
        (rate('"idle"', "-1"), "must be between 0 and 1000000, not -1"),
        (rate('"idle"', "0.0000001"), "must have at most 6 decimal places"),
    ],
)
def test_a_card_that_contradicts_itself_is_refused_with_its_place(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(catalogue.CatalogueError, match=r"models.toml: \[models.\"tiny\"") as refused:
        load(tmp_path, SIMPLE + more)
    assert says in str(refused.value)
