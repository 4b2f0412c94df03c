"""Claims about where commands find the API's URL and key."""

import stat

import pytest

from app.cli import credentials
from app.cli.client import ApiError, Client
from app.cli.data_dir_lock import owned
from app.settings import Settings
from app.user_errors import Failure
from tests.cli.support import Run


def test_login_stores_a_checked_key_that_only_its_owner_can_read(run: Run, api: Settings, key: str) -> None:
    shown = run("login", text=f"{key}\n", env={"SLACKWATER_API_KEY": ""})
    assert shown.exit_code == 0, shown.output
    assert "account acme" in shown.output
    assert key not in shown.output
    file = api.data_dir / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert credentials.find(api) == (f"http://127.0.0.1:{api.port}", key)
    assert run("logout").exit_code == 0
    assert credentials.stored(api.data_dir) is None


def test_login_refuses_a_wrong_key_and_keeps_the_old_one(run: Run, api: Settings, key: str) -> None:
    run("login", "--key", key)
    refused = run("login", "--key", "sk_sw_wrong")
    assert refused.exit_code == 1
    assert "unknown, expired or revoked" in refused.output
    known = credentials.stored(api.data_dir)
    assert known is not None
    assert known.key == key


def test_without_a_key_the_error_says_how_to_get_one(settings: Settings) -> None:
    with pytest.raises(Failure, match="no API key") as caught:
        credentials.find(settings)
    assert caught.value.remedy.startswith("Run `slackwater up`, which makes one.")
    assert "slackwater login" in caught.value.remedy
    elsewhere = settings.model_copy(update={"url": "http://elsewhere.example"})
    with pytest.raises(Failure, match="no API key") as caught:
        credentials.find(elsewhere)
    assert caught.value.remedy.startswith("Set SLACKWATER_API_KEY")


@pytest.mark.parametrize("end", ["/", "/v1", "/v1/"])
def test_a_url_as_openais_clients_take_it_is_the_one_without_v1(run: Run, api: Settings, key: str, end: str) -> None:
    bare = f"http://127.0.0.1:{api.port}"
    assert Settings(url=bare + end).url == bare
    assert run("login", bare + end, "--key", key).exit_code == 0
    assert credentials.find(api) == (bare, key)
    credentials.save(api.data_dir, bare + end, "acme", key, local=False)
    assert credentials.find(api) == (bare, key)


def test_without_a_key_while_up_starts_the_error_says_that_one_comes(settings: Settings) -> None:
    with owned(settings), pytest.raises(Failure, match="no API key") as caught:
        credentials.find(settings)
    assert caught.value.remedy.startswith("`slackwater up` is starting")


def test_a_stored_key_is_not_sent_to_another_url(settings: Settings) -> None:
    credentials.save(settings.data_dir, "http://127.0.0.1:1", "acme", "sk_sw_a")
    elsewhere = settings.model_copy(update={"url": "http://elsewhere.example"})
    with pytest.raises(Failure, match="no API key for http://elsewhere"):
        credentials.find(elsewhere)


def test_credentials_of_this_machine_follow_its_port_and_others_do_not(settings: Settings) -> None:
    credentials.save(settings.data_dir, "http://127.0.0.1:1", "local", "sk_sw_a")
    credentials.relocate(settings.data_dir, "http://127.0.0.1:2")
    assert credentials.find(settings)[0] == "http://127.0.0.1:2"
    credentials.save(settings.data_dir, "https://far.example", "acme", "sk_sw_b", local=False)
    credentials.relocate(settings.data_dir, "http://127.0.0.1:3")
    assert credentials.find(settings)[0] == "https://far.example"


def test_an_api_that_is_away_is_named_with_the_ways_out() -> None:
    with (
        Client("http://127.0.0.1:1", "sk_sw_a") as client,
        pytest.raises(Failure, match="does not answer") as caught,
    ):
        client.get("/ai/batches")
    assert "slackwater up" in caught.value.remedy


def test_a_refusal_carries_the_words_of_the_api(api: Settings, key: str) -> None:
    with Client(f"http://127.0.0.1:{api.port}", key) as client, pytest.raises(ApiError, match="No batch") as caught:
        client.get("/ai/batches/00000000-0000-0000-0000-000000000000")
    assert caught.value.status == 404
