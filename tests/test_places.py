"""Claims about places in lists, as they stand in cursors and addresses."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from app import places
from app.errors import PlaceUnknown

NOW = datetime(2026, 11, 30, 14, 16, 2, 123457, UTC)


def test_a_place_is_read_back_as_it_was_written() -> None:
    assert places.read(places.written(NOW, 7), places.number) == (NOW, 7)
    assert places.read(places.written(NOW, UUID(int=5)), UUID) == (NOW, UUID(int=5))
    assert places.read("", UUID) is None
    assert places.parsed(None, UUID) is None


@pytest.mark.parametrize(
    "wrong", ["x", "1", "1.", ".7", "1.-7", "1.x", "1.1_0", "1." + 19 * "9", "-1.7", 17 * "9" + ".7", "1.\u0663"]
)
def test_what_is_no_place_is_named_with_its_parameter(wrong: str) -> None:
    with pytest.raises(PlaceUnknown, match=r"before: .* is not in this list") as told:
        places.read(wrong, places.number, "before")
    assert told.value.param == "before"
