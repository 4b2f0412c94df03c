"""Claims about how often detectors find what is there, and what is not. `python -m tests.policy.rates` has the rates."""

import pytest

from tests.policy.rates import FAMILIES, rates

TEXTS = 60  # of each family; the same in every run


@pytest.mark.parametrize("families", FAMILIES)
def test_values_are_found_and_little_else(families: str) -> None:
    found = rates(FAMILIES[families], TEXTS)
    assert found["recall"] >= 0.95, found["missed"]
    assert found["found_in_1000_without"] <= 1, found["wrong"]
