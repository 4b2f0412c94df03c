"""Claims about secrets at rest and the hash of API keys."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from app import crypto
from app.engines.engine_key import door_token, engine_headers, engine_key, engine_keys, engine_of_door
from app.settings import Settings
from app.tenants.api_key import ApiKey

KEY = b"a key of this deployment, 32+ bytes"


def test_a_sealed_value_opens_only_with_its_key_and_context() -> None:
    sealed = crypto.seal(KEY, b"whsec_x", b"endpoint 1")
    assert crypto.unseal(KEY, sealed, b"endpoint 1") == b"whsec_x"
    assert b"whsec_x" not in sealed
    damaged = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for key, value, context in (
        (b"another key", sealed, b"endpoint 1"),
        (KEY, sealed, b"endpoint 2"),
        (KEY, damaged, b"endpoint 1"),
        (KEY, b"", b"endpoint 1"),
        (KEY, sealed[:5], b"endpoint 1"),
    ):
        with pytest.raises(crypto.Unreadable):
            crypto.unseal(key, value, context)


def test_the_same_value_is_sealed_differently_every_time() -> None:
    assert crypto.seal(KEY, b"x", b"") != crypto.seal(KEY, b"x", b"")


def test_the_hash_of_an_api_key_depends_on_the_master_key_and_hides_the_secret() -> None:
    hashed = ApiKey("1", "sk-1").hashed(KEY)
    assert len(hashed) == 32
    assert hashed == ApiKey("2", "sk-1").hashed(KEY)
    assert hashed != ApiKey("1", "sk-1").hashed(b"another key")
    assert hashed != ApiKey("1", "sk-2").hashed(KEY)


def test_the_configured_key_wins_and_touches_no_file(tmp_path: Path) -> None:
    assert crypto.secret_key(Settings(data_dir=tmp_path, secret_key="given")) == b"given"
    assert list(tmp_path.iterdir()) == []


def test_processes_that_start_at_once_share_one_kept_key_that_only_the_owner_reads(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new", secret_key="")
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: crypto.secret_key(settings), range(32)))
    assert len(keys) == 1
    assert len(keys.pop()) >= 32
    (file,) = settings.data_dir.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_bearer_token_is_of_one_key_and_one_purpose() -> None:
    tokens = [crypto.bearer_token(key, purpose) for key in (KEY, b"another key") for purpose in ("a", "b")]
    assert len(set(tokens)) == 4
    assert crypto.bearer_token(KEY, "a") == tokens[0]


def test_while_the_master_key_is_changed_what_the_other_one_made_is_readable_and_new_values_need_the_new_one(
    tmp_path: Path,
) -> None:
    old = "the key that was, 32 bytes or more"
    changed = Settings(data_dir=tmp_path, secret_key="the key to be, 32 bytes or more", secret_key_accepted=old)
    both, alone = (
        crypto.secret_key(changed),
        crypto.secret_key(changed.model_copy(update={"secret_key_accepted": SecretStr("")})),
    )
    assert crypto.accepted(both) == (both, old.encode())
    assert crypto.accepted(alone) == (alone,)
    before = crypto.seal(old.encode(), b"whsec", b"e")
    assert crypto.unseal(both, before, b"e") == b"whsec"
    with pytest.raises(crypto.Unreadable):
        crypto.unseal(alone, before, b"e")
    assert crypto.unseal(alone, crypto.seal(both, b"whsec", b"e"), b"e") == b"whsec"
    assert crypto.bearer_token(both, "x") == crypto.bearer_token(alone, "x")


def test_a_key_of_an_engine_and_a_token_of_its_door_are_shown_for_each_accepted_master_key() -> None:
    both = crypto.MasterKey(KEY)
    both.others = (b"another key",)
    settings = Settings(secret_key="x")
    assert engine_keys(both, "e") == [engine_key(settings, key, "e", "managed") for key in (KEY, b"another key")]
    shown = engine_headers(settings, both, "e", "attached")["x-slackwater-door"]
    assert shown.split(",") == [door_token(key, "e") for key in (KEY, b"another key")]
    assert engine_headers(settings, KEY, "e", "attached")["x-slackwater-door"] == door_token(KEY, "e")
    for token in shown.split(","):
        assert engine_of_door(both, token) == "e"
        assert (engine_of_door(KEY, token) == "e") is (token == door_token(KEY, "e"))
