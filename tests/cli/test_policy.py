"""Claims about `slackwater policy` and `slackwater account quota`: what they apply, show and refuse."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.db.pool import Database
from app.policy import samples
from app.policy.samples import Sample
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.support import slackwater

SMALL, KIMI = "smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6"
RULE = f'[[rule]]\nid = "small"\nwhen = {{ task = "extract" }}\nroute = "{SMALL}"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(RULE)
    return path


def applied(settings: Settings, file: Path, text: str) -> dict[str, Any]:
    file.write_text(text)
    done = slackwater(settings, "policy", "apply", str(file), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_versions_are_applied_compared_shown_and_rolled_back(settings: Settings, file: Path) -> None:
    assert "No policy was ever applied." in slackwater(settings, "policy", "show").stdout
    first = applied(settings, file, RULE)
    assert (first["version"], first["new"]) == (1, True)
    assert applied(settings, file, RULE) == first | {"new": False}  # the same text is the same version
    file.write_text(RULE + "max_tokens = 5\n")
    changed = slackwater(settings, "policy", "diff", str(file))
    assert (changed.returncode, "+max_tokens = 5" in changed.stdout) == (1, True)
    assert applied(settings, file, RULE + "max_tokens = 5\n")["version"] == 2
    assert slackwater(settings, "policy", "diff", str(file)).returncode == 0
    assert "version 2, applied by" in slackwater(settings, "policy", "show").stdout
    back = json.loads(slackwater(settings, "policy", "rollback", "--json").stdout)
    assert (back["version"], back["hash"], back["restores"]) == (3, first["hash"], 1)
    assert json.loads(slackwater(settings, "policy", "show", "--json").stdout)["text"] == RULE
    history = json.loads(slackwater(settings, "policy", "show", "--history", "--json").stdout)
    assert [each["version"] for each in history] == [3, 2, 1]


def test_a_policy_with_errors_is_refused_with_each_of_them_and_nothing_is_applied(
    settings: Settings, file: Path
) -> None:
    file.write_text(RULE + 'share = 0\n[[rule]]\nid = "b"\nroute = "nothing"\n')
    for command in ("apply", "diff", "test"):
        done = slackwater(settings, "policy", command, str(file))
        assert done.returncode == 1
        assert "line 5: rule small, share: must be a percentage" in done.stderr
        assert "line 8: rule b, route: no such model 'nothing'" in done.stderr
    assert slackwater(settings, "policy", "show", "--json").stdout.strip() == "null"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("apply", "/nothing/here.toml"), "cannot be read"),
        (("rollback",), "There is no version before this one."),
        (("rollback", "9"), "There is no version 9 of the policy"),
        (("show", "9"), "There is no version 9 of the policy"),
    ],
)
def test_what_does_not_exist_is_named(settings: Settings, arguments: tuple[str, ...], says: str) -> None:
    done = slackwater(settings, "policy", *arguments)
    assert done.returncode == 1
    assert says in done.stderr


def test_a_policy_is_tried_on_recorded_requests_before_it_is_applied(settings: Settings, file: Path) -> None:
    async def record() -> None:
        async with Database(settings.database_url, size=1) as database, database.durable() as conn:
            acme, other = [await tenants.ensure_tenant(conn, name) for name in ("acme", "other")]
            of_one = ("sync", KIMI, "/v1/chat/completions", None)
            await samples.store(
                conn,
                [
                    Sample(acme, "k", "search", "extract", True, *of_one, 40, 1_000_000, 500_000),
                    Sample(acme, "k", "search", "chat", True, *of_one, 2, 300, 200),
                    Sample(other, "k", "search", "secret", True, *of_one, 7, 300, 200),
                ],
            )

    asyncio.run(record())
    file.write_text(
        f'[[rule]]\nid = "small"\nwhen = {{ task = "extract" }}\nroute = "{KIMI}"\n'
        f'[[rule]]\nid = "closed"\nwhen = {{ task = "secret" }}\ndeny = "not here"\n'
        '[[rule]]\nid = "watch"\nobserve = true\ndeny = true\n[[rule]]\nid = "short"\nmax_tokens = 250000\n'
    )
    done = json.loads(slackwater(settings, "policy", "test", str(file), "--json").stdout)["recent"]
    assert (done["requests"], done["denied"]) == (49, 7)
    assert {each["rule"]: (each["matched"], each["denied"], each["observed"]) for each in done["rules"]} == {
        "small": (40, 0, 0),
        "closed": (7, 7, 0),
        "watch": (0, 0, 42),
        "short": (42, 0, 0),
    }
    assert done["denials"] == [{"message": "Policy rule closed denies this request: not here.", "requests": 7}]
    [cost] = done["cost"]
    assert cost["before"] == pytest.approx(40 * (0.5 * 0.60 + 0.5 * 3.00), rel=1e-3)
    assert cost["after"] == pytest.approx(40 * (0.5 * 0.60 + 0.25 * 3.00), rel=1e-3)
    shown = slackwater(settings, "policy", "test", str(file), "--account", "acme").stdout
    assert "The last 7d: 42 requests, 0 of them denied" in shown
    assert "no content" not in shown
    assert slackwater(settings, "policy", "test", str(file), "--last", "soon").returncode == 1


def test_a_quota_is_set_shown_and_removed(settings: Settings) -> None:
    assert slackwater(settings, "account", "create", "acme").returncode == 0
    set_ = slackwater(settings, "account", "quota", "acme", "--open-items", "100", "--stored-bytes", "5000", "--json")
    assert json.loads(set_.stdout)["limits"] == {
        "open_batches": None,
        "open_items": 100,
        "queued_tokens": None,
        "stored_bytes": 5000,
    }
    assert "open_items\t100\t0" in slackwater(settings, "account", "quota", "acme").stdout
    left = slackwater(settings, "account", "quota", "acme", "--open-items", "none", "--json")
    assert json.loads(left.stdout)["limits"]["open_items"] is None
    assert json.loads(left.stdout)["limits"]["stored_bytes"] == 5000
    wrong = slackwater(settings, "account", "quota", "acme", "--open-items", "many")
    assert (wrong.returncode, "--open-items many: not a limit." in wrong.stderr) == (1, True)
    assert "nobody" in slackwater(settings, "account", "quota", "nobody").stderr


def test_a_key_is_pinned_to_labels_and_a_wrong_label_is_refused(settings: Settings) -> None:
    pinned = ("--pin", "workflow=billing", "--pin", "critical=false")
    assert slackwater(settings, "key", "create", "--account", "acme", *pinned).returncode == 0
    [key] = json.loads(slackwater(settings, "key", "list", "--json").stdout)
    assert key["pins"] == {"workflow": "billing", "critical": "false"}
    for wrong, says in (
        ("workflow=Not OK", "must be 1 to 64"),
        ("colour=red", "choose from workflow"),
        ("critical=x", "true or false"),
    ):
        done = slackwater(settings, "key", "create", "--pin", wrong)
        assert (done.returncode, says in done.stderr) == (1, True), done.stderr
