"""What the OpenAPI document says by patterns is what the API takes."""

import base64
import re

import pytest

from app.api import submit_params
from app.errors import BadInput
from app.webhooks import signing, validation


@pytest.mark.parametrize("size", range(signing.SECRET_BYTES[0] - 3, signing.SECRET_BYTES[-1] + 4))
def test_a_secret_fits_its_pattern_where_it_can_sign(size: int) -> None:
    secret = signing.PREFIX + base64.b64encode(bytes(size)).decode()
    assert (signing.secret_problem(secret) is None) == bool(re.fullmatch(signing.PATTERN, secret))


@pytest.mark.parametrize("name", ["", " ", "\u2003\t", "\x85\xa0", "\0", "a\0", "x" * 257])
def test_a_name_must_have_something_to_be_seen(name: str) -> None:
    with pytest.raises(BadInput):
        validation.check_name(name)
    assert len(name) > validation.NAME_LENGTH or not re.fullmatch(validation.NAME, name)


@pytest.mark.parametrize("name", ["x", " nightly\n", "ü", "\u200b\u2003x"])
def test_any_other_name_may_be_given(name: str) -> None:
    validation.check_name(name)


@pytest.mark.parametrize(("unit", "most"), [("d", 90), ("h", 2160), ("m", 129_600), ("s", 7_776_000)])
def test_every_window_that_fits_its_pattern_is_taken(unit: str, most: int) -> None:
    for count in {0, 1, 9, 10, 89, 90, 91, 99, 100, 999, 1000, 99_999, 100_000, 999_999, most, most + 1}:
        if re.fullmatch(submit_params.WINDOW, text := f"{count}{unit}"):
            assert submit_params.window_seconds(text), text
    assert re.fullmatch(submit_params.WINDOW, "90d")
