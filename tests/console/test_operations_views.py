"""Claims about what the pages for those who run an installation say and draw, without a database."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from app.access.roles import Role, Viewer
from app.batches.fair_shares import ShareRow
from app.batches.lookups import Found, FoundBatch
from app.changes.service import Change
from app.console import nav
from app.console.queries import EngineRow
from app.console.queries_engines import GateChange, Tide
from app.console.queries_webhooks import HookRow, Summary
from app.console.render import FOLDER
from app.console.views import (
    engine,
    engine_plots,
    engines,
    fairness,
    figures,
    find,
    incidents,
    keys,
    playground,
    signs,
    text,
    webhooks,
)
from app.console.views.engine_plots import Frame, Held
from app.headroom.decision_log import AllowanceChange, LoggedChange
from app.headroom.gate_rules import Reason
from app.headroom.samples import EngineSample, StoredSample
from app.quantities import used_ago
from app.tenants.key_list import KeyRow
from app.tenants.key_scope import KeyLimits

NOW = datetime(2026, 11, 23, 14, 16, 2, tzinfo=UTC)
FRAME = Frame(NOW - timedelta(minutes=10), NOW, 10.0)


def viewer(role: Role, tenant_id: int | None = None) -> Viewer:
    return Viewer(1, "ada", role, tenant_id, "acme" if tenant_id else None, NOW, NOW)


def an_engine(name: str = "east-1", **changes: Any) -> EngineRow:
    usual: dict[str, Any] = {
        "engine_id": 1, "name": name, "model": "m", "protection": "inside", "state": "ready", "reason": "harvest",
        "signal": None, "value": None, "threshold": None, "held_seconds": 40.0, "slots": 256, "allowance": 100,
        "batch_in_flight": 90, "sync_in_flight": 60, "alive": True, "intake": "open", "problems": [],
        "silent_seconds": 0.7, "overdue": False,
    }  # fmt: skip
    return EngineRow(**usual | changes)


DEAD = {"state": "down", "alive": False, "allowance": 0}


@pytest.mark.parametrize(
    ("found", "title", "sign"),
    [
        ([], "No engine has a worker", signs.AWAY),
        ([an_engine()], "One engine serves", signs.DONE),
        ([an_engine(), an_engine("b", **DEAD)], "One of two engines serves", signs.BROKEN),
        ([an_engine(**DEAD)], "No engine serves", signs.BROKEN),
        ([an_engine(), an_engine("b", reason="closed_stale", allowance=0)], "Two engines serve", signs.BROKEN),
    ],
)
def test_engines_are_counted_by_what_they_do(found: list[EngineRow], title: str, sign: signs.Sign) -> None:
    assert engines.title(found) == title
    assert engines.worst(found) is sign


def test_an_engine_whose_worker_is_silent_is_told_without_the_last_reason() -> None:
    lost = an_engine(alive=False, signal="quiet_seconds", value=420.0, silent_seconds=180.0, usual_seconds=2.0)
    assert engines.gate_words(lost) == "has no worker: the last report of one was 3 min ago"
    assert engines.sign_of(lost) is signs.BROKEN
    late = an_engine(overdue=True, silent_seconds=8.0)
    assert engines.gate_words(late).endswith("; last report 8 s ago")
    noted = an_engine(alive=False, free=True, state="down", reason="model_missing", silent_seconds=5.0)
    assert engines.gate_words(noted).startswith("runs, but without this model")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "last report 1 s ago"),
        ({"silent_seconds": 8.2, "overdue": True}, "silent for 8 s"),
        (DEAD | {"silent_seconds": 180.0}, "silent for 3 min"),
    ],
)
def test_the_engines_table_says_how_old_each_report_is(changes: dict[str, Any], words: str) -> None:
    seen = engines.Seen([an_engine(**changes)], False, {}, FRAME)
    assert [row["heard"] for row in engines.view(seen, {}, NOW)["rows"]] == [words]


def test_the_sentence_about_engines_names_those_that_somebody_should_know_of() -> None:
    waiting = an_engine(
        "east-2", reason="closed_sync_waiting", signal="sync_waiting", value=6.0, threshold=0.0, allowance=0
    )
    said = engines.rest([an_engine(), waiting, an_engine("south-1", **DEAD), an_engine("b", intake="draining")])
    assert said == (
        "south-1 has no worker: the last report of one was 700 ms ago. "
        "east-2 serves synchronous requests first: 6 waiting, for 40 s. "
        "b is drained by an operator."
    )
    assert engines.rest([an_engine()]) == "It gives batch work what callers leave."


@pytest.mark.parametrize(("known", "words"), [(590, "of the time shown"), (420, "of the 7\u00a0min that are known")])
def test_the_share_of_open_gates_is_of_the_time_that_is_known(known: int, words: str) -> None:
    tides = [tide(n)._replace(closed_seconds=1.0) for n in range(0, known, 10)]
    found = engines.figures(engines.Seen([an_engine()], False, {1: tides}, FRAME))
    assert (found[-1].value, found[-1].words) == ("90", (figures.Part(words),))


def a_decision(signal: str, threshold: float) -> LoggedChange:
    return LoggedChange(NOW, 1, AllowanceChange("l1", 4, 2, "open", "shrink_latency", signal, 0.2, threshold, 4, 0))


def test_the_limit_of_a_step_is_the_one_that_the_last_decision_used() -> None:
    made = [a_decision("load", 9), a_decision("step_seconds", 0.14)]
    seen: Any = SimpleNamespace(engine=an_engine(), decisions=made, latest=None)
    assert engine._closing("step_seconds", 0.022, seen) == "shrinks above 140 ms now"
    seen.latest = SimpleNamespace(sample=SimpleNamespace(allowed_ms=573.0, sync=2.0))
    assert engine._closing("step_seconds", 0.022, seen) == "shrinks above 573 ms now"
    seen.engine = an_engine(signal="step_seconds", value=0.01, threshold=0.06)
    assert engine._closing("step_seconds", 0.022, seen) == "shrinks above 60 ms now"
    seen = SimpleNamespace(engine=an_engine(), decisions=[], latest=None)
    assert engine._closing("step_seconds", 0.022, seen) == "shrinks above 22 ms or more"


def test_how_callers_are_protected_is_not_said_of_an_engine_that_does_not_answer_yet() -> None:
    starting = an_engine(protection="outside", state="down", reason="engine_down", mode="managed")
    assert (engines.layer(starting), engines.layer(an_engine(protection="outside"))) == ("", "L1")


def tide(seconds_ago: float, batch: int = 100, sync: int = 50) -> Tide:
    return Tide(NOW - timedelta(seconds=seconds_ago), "harvest", 10.0, 0.0, batch, sync)


def test_a_hole_in_the_samples_is_a_hole_in_the_drawing() -> None:
    whole = engine_plots.tide("e", [tide(n) for n in (40, 30, 20, 10)], FRAME)
    torn = engine_plots.tide("e", [tide(n) for n in (400, 390, 20, 10)], FRAME)
    assert [len(whole.shapes), len(torn.shapes)] == [3, 6]
    assert engine_plots.tide("e", [], FRAME).shapes == ()


def test_one_sample_is_drawn_as_wide_as_its_time() -> None:
    [[begin, end]] = engine_plots.runs([(NOW - timedelta(seconds=300), 10.0, 1.0)], FRAME)
    assert end[0] - begin[0] == pytest.approx(10 / 600)


def sampled(seconds_ago: float, **changes: Any) -> StoredSample:
    usual: dict[str, Any] = {
        "reason": "harvest", "allowance": 9.0, "batch": 4.0, "sync": 2.0, "sync_waiting": 0.0, "frozen": 0.0, "kv_usage": 0.5,
        "step_ms": 20.0, "predicted_ms": 21.0, "allowed_ms": 25.0, "seconds": 10.0, "closed_seconds": 0.0,
        "batch_tokens": 100, "sync_tokens": 50, "yields": 0, "evictions": 0,
    }  # fmt: skip
    return StoredSample(NOW - timedelta(seconds=seconds_ago), EngineSample(**usual | changes))


def test_an_engine_that_is_down_does_nothing_now_whatever_its_last_sample_says() -> None:
    for each, known in ((an_engine(), True), (an_engine(**DEAD), False), (an_engine(state="down"), False)):
        seen: Any = SimpleNamespace(engine=each, latest=sampled(4))
        assert (engine._fresh(seen, NOW) is not None) == known


CHANGES = [
    GateChange(NOW - timedelta(minutes=5), 0, "closed_sync_waiting"),
    GateChange(NOW - timedelta(minutes=4), 9, "open"),
]


def test_the_ribbon_of_a_gate_goes_from_change_to_change() -> None:
    bars = engine_plots.gate("e", CHANGES, [sampled(n) for n in range(590, -1, -10)], FRAME).bars
    assert [(bar.kind, bar.x, bar.width) for bar in bars] == [("r-open", 0, 50), ("r-sync", 50, 10), ("r-open", 60, 40)]


def test_nothing_is_drawn_of_a_time_that_no_worker_saw() -> None:
    seen = [*range(270, 209, -10), *range(60, -1, -10)]  # from 280 s on, with a hole between 210 and 70
    bars = engine_plots.gate("e", CHANGES, [sampled(n) for n in seen], FRAME).bars
    assert [(bar.kind, round(bar.x), round(bar.width)) for bar in bars] == [
        ("r-sync", 53, 7), ("r-open", 60, 5), ("r-open", 88, 12)
    ]  # fmt: skip
    assert engine_plots.gate("e", CHANGES, [], FRAME).bars == []


def test_a_plot_without_values_says_why() -> None:
    idle = [sampled(n, batch_tokens=0, sync_tokens=0, kv_usage=None, step_ms=None, predicted_ms=None, allowed_ms=None)
            for n in (20, 10)]  # fmt: skip
    drawn = {each.name: each.plot for each in engine_plots.panels(idle, idle[-1].sample, A_FEW, 0.9, FRAME)}
    assert [word.text for word in drawn["Tokens a second"].words] == ["no token was computed in this time"]
    assert [word.text for word in drawn["KV cache"].words] == ["the engine does not say it"]
    assert [word.text for word in drawn["Step time"].words] == ["no step was measured in this time"]
    assert [word.text for word in engine_plots.tide("e", [], FRAME).words] == ["nothing is known of this time"]


A_FEW = Held.of(2, 4, 0, 32)


def test_what_an_idle_step_may_take_is_no_budget_and_sets_no_scale() -> None:
    busy, idle = sampled(20), sampled(10, sync=0.0, allowed_ms=14_546.0)
    before, after = (
        next(
            each for each in engine_plots.panels(given, given[-1].sample, A_FEW, 0.9, FRAME) if each.name == "Step time"
        )
        for given in ([busy], [busy, idle])
    )
    assert [(word.text, word.colour) for word in after.plot.words] == [("budget 25 ms", "bad")]
    assert [word.y for word in after.plot.words] == [word.y for word in before.plot.words]
    assert "no caller: a step may take 15\u00a0s" in after.sub
    assert "no caller" not in before.sub
    [only] = [each for each in engine_plots.panels([idle], idle.sample, A_FEW, 0.9, FRAME) if each.name == "Step time"]
    assert not only.plot.words


def test_a_decision_shows_no_comparison_that_was_not_made() -> None:
    usual = {"layer": "l2", "was_allowance": 0, "allowance": 30, "was_reason": "closed_unknown", "reason": "harvest",
             "signal": "step_seconds", "in_flight": 0, "credited": 0}  # fmt: skip
    told = [
        engine._decision(
            engine.Folded(LoggedChange(NOW, n, AllowanceChange(**usual, value=value, threshold=limit))), None
        )  # type: ignore[arg-type]
        for n, (value, limit) in enumerate([(0.0, 0.0), (0.031, 0.05)])
    ]
    assert [(each["value"], each["threshold"]) for each in told] == [("", ""), ("31 ms", "50 ms")]


def test_decisions_that_change_nothing_are_one_row_with_the_one_before_them() -> None:
    stale = {"layer": "l1", "allowance": 0, "reason": "closed_stale", "in_flight": 0, "credited": 0,
             "signal": "age_seconds", "value": 2.0, "threshold": 1.5}  # fmt: skip
    told = [("harvest", 9, "", 60), *(("closed_stale", 0, f"error {n}", 50 - 10 * n) for n in range(3))]
    rows = [
        LoggedChange(
            NOW - timedelta(seconds=ago),
            n,
            AllowanceChange(**stale, was_reason=was, was_allowance=many, detail=said),  # type: ignore[arg-type]
        )
        for n, (was, many, said, ago) in enumerate(told)
    ]
    [kept] = engine._folded(rows[::-1])
    shown = engine._decision(kept, None)
    assert (shown["was"], shown["again"]) == ("harvest", "3 times more, the last at 14:15:32.0")
    assert "error 2" in shown["because"]


def decisions(*made: tuple[float, str, int, str, int]) -> list[engine.Folded]:
    """What is shown of these: (seconds ago, reason and allowance before, reason and allowance after), newest last."""
    rows = [
        LoggedChange(NOW - timedelta(seconds=ago), n, AllowanceChange("l2", had, has, was, now, None, None, None, 0, 0))
        for n, (ago, was, had, now, has) in enumerate(made)
    ]
    return engine._folded(rows[::-1])


def test_a_decision_that_changes_nothing_has_no_row_and_the_only_one_no_change() -> None:
    assert len(decisions((9, "closed_unknown", 0, "closed_unknown", 0), (5, "closed_unknown", 0, "harvest", 8))) == 1
    [only] = decisions((9, "closed_unknown", 0, "closed_unknown", 0))
    shown = engine._decision(only, None)
    assert (shown["words"], shown["was_words"]) == ("Closed: no telemetry", "")
    assert (shown["was_allowance"], shown["allowance"]) == ("", "0")


def test_what_a_new_worker_still_does_not_know_is_not_a_repetition_of_what_the_one_before_decided() -> None:
    made = decisions((9, "closed_unknown", 0, "harvest", 8), (5, "closed_unknown", 0, "closed_unknown", 0))
    assert [(each.entry.change.reason, len(each.again)) for each in made] == [("closed_unknown", 0), ("harvest", 0)]


def test_decisions_to_and_fro_are_one_row() -> None:
    on, off = ("closed_model_error", 0, "harvest", 8), ("harvest", 8, "closed_model_error", 0)
    first, *rest = decisions((99, "ramp", 4, "harvest", 8), (3, *off), (2.7, *on), (2.5, *off), (2.2, *on))
    shown = engine._decision(first, rest[0])
    assert (len(rest), shown["again"]) == (1, "4 changes to and fro since 14:15:59.0")
    assert (shown["words"], shown["was_words"], shown["lasted"]) == (
        "Shares steps",
        "Closed: forecasts are off",
        "2\u00a0min",
    )
    assert len(decisions((99, *off), (2, *on))) == 2


def test_the_first_decision_of_a_new_worker_does_not_claim_the_time_of_the_one_before() -> None:
    first, before = decisions((90, "open", 4, "full", 8), (5, "closed_unknown", 0, "open", 4))
    assert engine._decision(first, before)["lasted"] == ""
    first, before = decisions((90, "open", 4, "full", 8), (5, "full", 8, "open", 4))
    assert engine._decision(first, before)["lasted"] == "85\u00a0s"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_in_the_log_of_decisions(reason: Reason) -> None:
    assert signs._GATES[reason]


def test_the_headline_of_an_engine_has_no_step_time_beside_that_of_the_plot() -> None:
    for signal, value in (("step_seconds", 0.031), ("quiet_seconds", 60.0)):
        each = an_engine(signal=signal, value=value, threshold=0.025)
        day: Any = SimpleNamespace(seconds=0.0)
        seen: Any = SimpleNamespace(
            engine=each, latest=None, day=day, replaced=None, detail=SimpleNamespace(expected=None)
        )
        strong, _ = engine.lede(seen, NOW)
        assert strong == "Gives batch work what synchronous requests leave of every step, for 40 s."


@pytest.mark.parametrize(
    ("sync", "batch", "frozen", "slots", "shown"),
    [
        (2, 17.4, 0, 32, (2, 17, 0, 13, 0)),
        (0, 41, 3, 32, (0, 32, 3, 0, 9)),
        (40, 5, 0, 32, (32, 0, 0, 0, 13)),
        (0, 0, 0, 0, (0, 0, 0, 0, 0)),
    ],
)
def test_slots_add_up_and_what_has_none_waits(
    sync: float, batch: float, frozen: float, slots: int, shown: tuple[int, ...]
) -> None:
    found = Held.of(sync, batch, frozen, slots)
    assert (found.sync, found.batch, found.frozen, found.free, found.queued) == shown
    assert found.sync + found.batch + found.free == slots


@pytest.mark.parametrize(
    ("slots", "batch", "sync", "squares", "kinds"),
    [(4, 1, 2, 4, "sshn"), (256, 0, 256, 256, "s" * 256), (1024, 512, 256, 256, "s" * 64 + "h" * 128 + "n" * 64)],
)
def test_slots_are_squares_of_who_holds_them(slots: int, batch: int, sync: int, squares: int, kinds: str) -> None:
    drawn = engine.waffle(Held.of(sync, batch, 0, slots))
    assert "".join(kind for kind, _, _ in drawn["places"]) == kinds
    assert len(drawn["places"]) == squares


def change(minutes_ago: float, kind: str, subject: str = "a", **data: Any) -> Change:
    return Change(int(minutes_ago), NOW - timedelta(minutes=minutes_ago), kind, subject, None, data)


def test_a_trouble_lasts_until_what_ends_it_for_the_same_subject() -> None:
    found = incidents.spans(
        [
            change(1, "gate.closed", "b"),
            change(2, "engine.ready", "a"),
            change(5, "gate.opened", "b"),
            change(6, "gate.closed", "b"),
            change(8, "engine.down", "a"),
        ]
    )
    lengths = {(s.change.kind, s.change.subject, s.change.change_id): s.until for s in found}
    assert lengths == {
        ("gate.closed", "b", 1): None,
        ("gate.closed", "b", 6): NOW - timedelta(minutes=5),
        ("engine.down", "a", 8): NOW - timedelta(minutes=2),
    }


def test_the_loss_of_a_worker_lasts_until_its_engine_is_ready_and_without_an_engine_is_over() -> None:
    found = incidents.spans([change(1, "worker.lost", "vm", worker=1), change(2, "worker.lost", "a", engine="a")])
    assert [span.until for span in found] == [NOW - timedelta(minutes=1), None]


def test_the_longest_trouble_may_be_one_that_lasts_and_a_loss_begins_with_the_last_sign_of_life() -> None:
    lost = change(20, "worker.lost", "a", engine="a", silent_seconds=600.0)
    known = incidents.spans([change(1, "engine.ready", "b"), change(3, "engine.down", "b"), lost])
    lasting = [span for span in known if not span.until]
    assert "the longest for 30 min until now" in incidents.rest(lasting, known, "24h", NOW).replace(text.NBSP, " ")
    assert (
        incidents._entry(lost, {span.change.change_id: span for span in known}, NOW)["lasted"]
        == f"still, for 30{text.NBSP}min"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (change(1, "engine.down", "s-1", reason="it has ended"), "s-1 does not serve any more: it has ended"),
        (change(1, "gate.closed", "b", reason="closed_stale"), "The gate of b closed: it sends no fresh telemetry"),
        (change(1, "budget.spent", "x\u202e", message="1"), "Budget x⟨U+202E⟩ is spent: 1"),
        (change(1, "something.new", "b"), "Something.new: b"),
        (change(1, "part.started", "api", version="1"), "API started, version 1"),
        (change(1, "part.started", "gpu-worker east-1", version="1"), "GPU worker east-1 started, version 1"),
        (change(1, "part.started", "steward", version="1"), "Steward started, version 1"),
    ],
)  # fmt: skip
def test_a_change_is_told_as_a_sentence(given: Change, words: str) -> None:
    assert incidents.words(given) == words


WARNING = {
    "engine": "east-1",
    "code": "no_plugin",
    "message": "From outside only.",
    "remedy": "Install it.",
    "severity": "warning",
}


def test_nothing_is_broken_only_where_the_status_has_no_problem() -> None:
    def shown(*found: dict[str, str]) -> dict[str, Any]:
        seen = incidents.Seen([], False, [], NOW - timedelta(days=1), found)
        return incidents.view(seen, viewer(Role.ADMIN), {}, NOW)

    warned, failed = shown(*[WARNING] * 4), shown(WARNING, WARNING | {"severity": "error"})
    assert (warned["title"], warned["sign"]) == ("Four warnings", signs.LOOK)
    assert (failed["title"], failed["sign"]) == ("Two problems", signs.BROKEN)
    assert [each["words"] for each in warned["problems"]] == ["east-1: From outside only."] * 4
    assert (shown()["title"], shown()["sign"]) == ("Nothing is broken now", signs.DONE)


@pytest.mark.parametrize(
    ("found", "title"),
    [
        ([], "Nothing is broken now"),
        ([change(1, "engine.drained")], "Nothing is broken now"),
        ([change(1, "breaker.opened", "hook", failures=5, until="2026-11-23T14:40:00Z")],
         "Webhook hook failed 5 times in a row; deliveries stopped until Mon 23 Nov 14:40 UTC, "
         "then one at a time is tried"),
        ([change(1, "engine.down", "a"), change(1, "engine.down", "b")], "Two things are broken now"),
    ],
)  # fmt: skip
def test_the_title_of_incidents_is_what_is_broken(found: list[Change], title: str) -> None:
    assert incidents.title(incidents.spans(found)) == title


@pytest.mark.parametrize(
    ("found", "title"),
    [
        (Summary(0, 0, 0, 0), "No webhook has been made"),
        (Summary(1, 0, 0, 0), "The webhook accepts its events"),
        (Summary(9, 0, 0, 0), "All webhooks accept their events"),
        (Summary(1, 0, 1, 0), "The webhook does not accept its events"),
        (Summary(9, 1, 0, 0), "One of nine webhooks is disabled"),
        (Summary(9, 1, 1, 1), "Two of nine webhooks do not accept their events"),
    ],
)
def test_the_title_of_webhooks_is_whether_events_arrive(found: Summary, title: str) -> None:
    assert webhooks.title(found) == title


def hook(**changes: Any) -> HookRow:
    usual: dict[str, Any] = {
        "endpoint_id": UUID(int=1), "tenant_id": 1, "account": "acme", "name": "h", "url": "https://u:p@a.example:8443/x?key=1",
        "queue_id": None, "model": None, "kinds": [], "format": "openai", "state": "active", "reason": None,
        "failing_since": None, "failures": 0, "open_until": None, "previous_until": None, "ordered": False, "max_in_flight": 8,
        "max_per_second": None, "tags": [], "metadata": {}, "created_at": NOW, "pending": 0, "held": 0, "sending": 0, "dead": 0,
        "latest": [],
    }  # fmt: skip
    return HookRow(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "words", "sign"),
    [
        ({}, "Accepts its events", signs.DONE),
        ({"state": "pending"}, "Has to accept a test event first", signs.WAITS),
        ({"state": "paused"}, "Paused", signs.PAUSED),
        ({"state": "disabled", "failing_since": NOW}, "Disabled", signs.BROKEN),
        ({"failing_since": NOW - timedelta(minutes=14), "failures": 2}, "Fails since 14:02", signs.LOOK),
        (
            {"failing_since": NOW, "failures": 7, "open_until": NOW + timedelta(minutes=4)},
            "Nothing is sent until 14:20",
            signs.LOOK,
        ),
        ({"url": None, "queue_id": "q", "pending": 3}, "Events wait to be fetched", signs.DONE),
    ],
)
def test_the_state_of_a_webhook_is_told_with_what_comes_next(
    changes: dict[str, Any], words: str, sign: signs.Sign
) -> None:
    state = webhooks.health(hook(**changes), NOW)
    assert (state.words, state.sign) == (words, sign)


def test_the_address_of_a_webhook_is_shown_without_what_may_be_a_secret() -> None:
    assert webhooks.destination(hook()) == "a.example:8443/…"


def share(account: str, tenant_id: int, **changes: Any) -> ShareRow:
    usual: dict[str, Any] = {"weight": 1.0, "max_inflight": 1000, "vtime": 0.0, "ready": 1, "inflight": 0}
    return ShareRow("m", tenant_id, account, **usual | changes)


def test_a_share_is_the_weight_among_those_with_work() -> None:
    rows = [share("a", 1, weight=3.0, vtime=10.0), share("b", 2, vtime=5.0)]
    [first, second] = fairness.shares(rows, {("m", 1): 60, ("m", 2): 40})["m"]
    assert (first.due, first.got, first.ahead, first.next) == (0.75, 0.6, 15.0, True)
    assert (second.due, second.got, second.short) == (0.25, 0.4, False)


@pytest.mark.parametrize(
    ("inflight", "title", "why"),
    [
        (0, "Every account gets what its weight gives it", "had no work"),
        (1000, "a is held by its limit of tokens in flight below its share", "as much in flight"),
    ],
)  # fmt: skip
def test_who_got_too_little_is_told_with_the_reason(inflight: int, title: str, why: str) -> None:
    found = fairness.shares([share("a", 1, inflight=inflight), share("b", 2)], {("m", 1): 10, ("m", 2): 90})
    assert fairness.headline(found, viewer(Role.OPERATOR))[1] == title
    assert (
        fairness.headline({}, viewer(Role.OPERATOR))[1] == "No account has work that can run"
    )  # but may wait for money
    assert why in fairness.rest(found, viewer(Role.OPERATOR))
    assert "b" not in fairness.rest(found, viewer(Role.ADMIN, 1)).split()


def test_a_keys_row_says_its_role_and_what_it_is_limited_to() -> None:
    assert keys.scope(a_key()) == "admin"
    limited = a_key(role="submitter", models=["m1"], networks=["10.0.0.0/8"])
    assert keys.scope(limited) == "submitter, only m1, 10.0.0.0/8"


def a_key(**changes: Any) -> KeyRow:
    usual: dict[str, Any] = {
        "key_id": "k1", "account": "acme", "name": "n", "created_at": NOW, "last_used_at": None, "expires_at": None,
        "revoked_at": None, "requests_per_minute": None, "tokens_per_minute": None, "pins": None, "requests": None,
        "tokens": None,
    }  # fmt: skip
    return KeyRow(**usual | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Live"),
        ({"expires_at": NOW + timedelta(days=12)}, "Expires in 12 days"),
        ({"expires_at": NOW + timedelta(days=40)}, "Live"),
        ({"expires_at": NOW - timedelta(minutes=16)}, "Expired 14:00"),
        ({"revoked_at": NOW - timedelta(minutes=16)}, "Revoked 14:00"),
    ],
)
def test_the_state_of_a_key_is_whether_it_opens_anything(changes: dict[str, Any], words: str) -> None:
    assert keys.state(a_key(**changes), NOW)[1].replace("\u00a0", " ") == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "within the last minute"), (61, "within the last 2 minutes"), (300, "5 min ago")]
)
def test_the_last_use_of_a_key_is_not_said_more_exactly_than_it_is_noted(seconds: int, words: str) -> None:
    used = a_key(last_used_at=NOW - timedelta(seconds=seconds))
    assert keys._row(used, KeyLimits(), viewer(Role.ADMIN), NOW)["used"] == words
    assert used_ago(seconds) == words


def test_a_key_is_measured_by_its_nearest_limit_its_own_or_the_usual_one() -> None:
    row = a_key(requests_per_minute=100, requests=10, tokens=900)
    bar, words = keys.minute(row, KeyLimits(None, 1000))
    assert words == "10 of 100 requests, 900 of 1k tokens"
    assert bar is not None
    assert (bar.parts[0].kind, bar.parts[0].width) == ("warn", 90.0)
    assert keys.minute(a_key(requests=3), KeyLimits()) == (None, "3 requests, no limit")


def test_what_was_found_is_named_once_and_leads_to_its_page() -> None:
    batch = FoundBatch(UUID(int=5), "nightly", "acme", "m", "open")
    hits = find.hits([batch], [Found("engine", "a/b", "a/b", "m"), Found("account", "acme", "acme", "")], "x&y")
    assert [(hit.kind, hit.href) for hit in hits] == [
        ("Engine", "/console/engines/a%2Fb"),
        ("Account", "/console/batches?view=all&q=account%3Aacme"),
        ("Batch", f"/console/batches/{UUID(int=5)}"),
        ("Tag", "/console/batches?view=all&q=tag%3Ax%26y"),
    ]


def test_webhooks_of_one_name_are_told_apart_by_where_they_go() -> None:
    rows = [hook(name="webhook", failing_since=NOW, url=f"https://{host}.example/x") for host in ("a", "b")]
    found = webhooks.Seen(rows, False, Summary(2, 0, 2, 0))
    assert webhooks.rest(found, NOW).startswith(
        "webhook (a.example/…): fails since 14:16. webhook (b.example/…): fails"
    )


def test_no_two_entries_of_the_rail_look_alike() -> None:
    entries = [entry for group in nav.GROUPS for entry in group]
    for what in ("name", "icon", "key", "path"):
        assert len({getattr(entry, what) for entry in entries}) == len(entries), what
    assert "Shortcuts" not in {entry.name for entry in entries}
    sprite = (FOLDER / "templates" / "sprite.html").read_text()
    assert all(f'id="i-{entry.icon}"' in sprite for entry in entries)


@pytest.mark.parametrize(
    ("served", "models"),
    [([], ["a", "b"]), (["b"], ["b", "a (no engine serves it now)"])],
)
def test_models_that_an_engine_serves_come_first(served: list[str], models: list[str]) -> None:
    known = SimpleNamespace(
        models={name: SimpleNamespace(name=name, served=name, task="text-generation") for name in ("a", "b")}
    )
    shown = [words for _, words in playground.empty(known, served)["models"]]  # type: ignore[arg-type]
    assert shown == (models if served else [f"{name} (no engine serves it now)" for name in models])
