"""Claims about exported charges as CSV."""

import pytest

from app.metering import charges_csv


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_a_label_that_a_spreadsheet_would_compute_is_shown_as_text(first: str) -> None:
    assert charges_csv._inert(f"{first}1+1") == f"'{first}1+1"


def test_other_labels_and_numbers_stay_as_they_are() -> None:
    for value in ("nightly", "a=b", "", charges_csv._EMPTY, 7, None):
        assert charges_csv._inert(value) == value
