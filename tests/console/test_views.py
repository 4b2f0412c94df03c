"""Claims about the words and drawings of the console, without a database."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from app.access.roles import Role, Viewer
from app.batches import id_prefix
from app.console.views import batch_filter, growth, item, plots, text, times
from app.errors import BadInput
from app.metering.families import NONE
from app.metering.reports import UsageRow
from app.usage_counts import UsageCounts

NOW = datetime(2026, 11, 23, 14, 16, 2, tzinfo=UTC)
VIEWER = Viewer(1, "ada", Role.OPERATOR, None, None, NOW, NOW)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("right\u202eleft", "right⟨U+202E⟩left"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("bell\x07 esc\x1b[31m", "bell⟨U+0007⟩ esc⟨U+001B⟩[31m"),
        ("zero\u200bwidth\ufeff", "zero⟨U+200B⟩width⟨U+FEFF⟩"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("line\u2028break\r", "line⟨U+2028⟩break⟨U+000D⟩"),
        ("\udc80", "���"),
    ],
)
def test_hidden_and_reordering_characters_are_spelled_out(given: str, shown: str) -> None:
    assert text.inert(given) == (shown, 0)


def test_a_long_text_is_cut_between_characters_and_says_how_much_is_missing() -> None:
    shown, cut = text.inert("é" * 40_000)
    assert len(shown.encode()) == text.MOST_BYTES
    assert cut == 80_000 - text.MOST_BYTES
    assert text.inert("aé", 2) == ("a", 1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (0.25, "250 ms"),
        (2.1, "2.1 s"),
        (40, "40 s"),
        (480, "8 min"),
        (7800, "2 h 10 min"),
        (86_400, "24 h"),
        (172_800, "2 days"),
    ],
)
def test_a_length_of_time_is_told_as_a_person_would(seconds: float | None, words: str) -> None:
    assert times.span(seconds).replace(text.NBSP, " ") == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (820, "820"), (4280, "4.3k"), (15_900, "15.9k"), (138e6, "138 M"), (5.62e9, "5.6 B")],
)
def test_a_large_number_has_three_digits(number: float, words: str) -> None:
    assert text.compact(number).replace(text.NBSP, " ") == words


@pytest.mark.parametrize(
    ("share", "words"), [(0, "0"), (1, "100"), (0.9999, "99.9"), (0.0001, "0.1"), (0.766, "76.6"), (0.73, "73")]
)
def test_a_share_is_never_all_or_nothing_unless_it_is(share: float, words: str) -> None:
    assert text.percent(share) == words


def test_money_below_a_cent_keeps_its_digits() -> None:
    assert [text.money(amount) for amount in (0, 3.881, 0.0042, 0.000038, None)] == [
        "$0.00",
        "$3.88",
        "$0.0042",
        "$0.000038",
        "–",
    ]
    assert text.money(5, "CHF") == f"5.00{text.NBSP}CHF"


def test_a_clock_time_names_another_day() -> None:
    assert times.clock_time(NOW, NOW) == "14:16"
    assert times.clock_time(NOW + timedelta(days=2), NOW) == "Wed 14:16"
    assert times.clock_time(NOW - timedelta(days=20), NOW) == "3 Nov 14:16"


def test_ticks_begin_and_end_with_the_plot_and_do_not_meet() -> None:
    found = plots.ticks(NOW - timedelta(hours=1), NOW)
    assert [tick.text for tick in found] == ["13:16", "13:30", "13:45", "14:00", "now"]
    places = [tick.x for tick in found]
    assert places == sorted(places)
    assert min(b - a for a, b in pairwise(places)) > 5


@pytest.mark.parametrize("days", [2.0, 2.02, 2.5, 3.0, 3.9])
def test_no_two_times_of_an_axis_have_the_same_words(days: float) -> None:
    words = [tick.text for tick in plots.ticks(NOW, NOW + timedelta(days=days), ends="", now=NOW)]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("now", [None, 0.0, 0.1, 0.5, 1.0])
def test_an_axis_has_at_most_six_times_however_long_it_is(now: float | None) -> None:
    for seconds in (1, 59, 61, 3600, 7000, 86_400, 180_000, 35 * 86_400, 294 * 86_400, 900 * 86_400, 40_000 * 86_400):
        end = NOW + timedelta(seconds=seconds)
        mark = None if now is None else NOW + (end - NOW) * now
        found = plots.ticks(NOW, end, now=mark)
        assert len(found) <= 6, (seconds, found)
        assert len({tick.text for tick in found if tick.text != "now"}) >= len(found) - 2


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95, 1.0])
def test_now_is_a_word_of_its_own_that_no_other_time_meets(share: float) -> None:
    found = plots.ticks(NOW, NOW + timedelta(hours=1), ends="", now=NOW + share * timedelta(hours=1))
    [now] = [tick.x for tick in found if tick.text == "now"]
    assert min(abs(tick.x - now) for tick in found if tick.x != now) > 10


def test_amounts_beside_a_scale_have_the_digits_that_they_need() -> None:
    assert text.money_scale([0.001, 0.002]) == ["$0.0010", "$0.0020"]
    assert text.money_scale([0.00025, 0.0005]) == ["$0.000250", "$0.000500"]
    assert text.money_scale([0.005, 0.01]) == ["$0.0050", "$0.0100"]
    assert text.money_scale([2.5, 5.0]) == ["$2.50", "$5.00"]
    assert text.money_scale([1000.0, 2000.0]) == ["$1,000", "$2,000"]
    assert text.money_scale([2.0, 4.0], "CHF") == [f"2{text.NBSP}CHF", f"4{text.NBSP}CHF"]


def test_the_top_of_a_scale_is_near_its_largest_value() -> None:
    for most in (0.004, 0.07, 0.5, 1.0, 7.3, 140.0, 14_546.0):
        assert most <= plots.nice_top(most) <= 1.7 * most


def test_a_meter_shows_what_is_there_and_never_more_than_all() -> None:
    drawn = plots.meter("m", 10_000, ("ok", 9_999), ("bad", 1), ("run", 0))
    assert [part.kind for part in drawn.parts] == ["ok", "bad"]
    assert drawn.parts[1].width > 0
    assert sum(part.width for part in drawn.parts) <= 100


def test_a_stretch_is_cut_to_the_plot_and_joined_with_an_equal_neighbour() -> None:
    start, end = NOW - timedelta(minutes=10), NOW
    middle = NOW - timedelta(minutes=5)
    spans = [(start - timedelta(hours=1), middle, "a", "x"), (middle, None, "a", "y")]
    assert plots.stretches(spans, start, end) == [("a", "x", 0, 100)]


def test_a_filter_says_which_word_it_does_not_know() -> None:
    found = batch_filter.parse("state:paused meta.team:x tag:a tag:b 5f1c")
    assert (found.state, found.meta, found.tags, found.text) == ("paused", {"team": "x"}, ["a", "b"], "5f1c")
    with pytest.raises(BadInput, match=r"colour.*state, model"):
        batch_filter.parse("colour:red")
    with pytest.raises(BadInput, match="no state gone"):
        batch_filter.parse("state:gone")


def test_first_digits_are_a_range_of_ids() -> None:
    found = id_prefix.id_range("batch_5f1c-9")
    assert found is not None
    assert (found[0].hex[:5], found[1].hex[:5]) == ("5f1c9", "5f1c9")
    assert id_prefix.id_range("name") is None
    assert id_prefix.id_range("5f") is None


def test_a_prompt_is_shown_as_text_whatever_its_form() -> None:
    chat = b'{"messages": [{"role": "user", "content": "<b>x</b>"}, {"role": "tool", "content": [1]}]}'
    assert item.prompt(chat) == "user:\n<b>x</b>\n\ntool:\n[\n  1\n]"
    assert item.prompt(b'{"prompt": "p"}') == "p"
    assert item.prompt(b"no json") == "no json"
    assert item.answer(b'{"choices": [{"message": {"content": "a"}}]}') == "a"


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, (False, False)),
        (Role.ADMIN, (True, True)),
        (Role.OPERATOR, (True, False)),
        (Role.AUDITOR, (False, False)),
    ],
)
def test_only_an_admin_reveals_and_only_admins_and_operators_act(role: Role, may: tuple[bool, bool]) -> None:
    assert (role.acts, role.reveals) == may


@pytest.mark.parametrize(
    ("name", "prompt", "cached", "said"),
    [
        ("a1b2", 200_000, 190_000, "The cache serves every large family of prompts."),
        ("a1b2", 200_000, 2_000, "Only 1\u00a0% of the prompts of family a1b2 in workflow w came from the cache."),
        ("a1b2", 900, 0, "No family of prompts has 100k tokens"),
        (NONE, 200_000, 0, "No family of prompts has 100k tokens"),
    ],
)
def test_the_cache_is_judged_by_large_families_alone(name: str, prompt: int, cached: int, said: str) -> None:
    counts = UsageCounts(requests=9, ok=9, prompt=prompt, output=1)
    counts.cached = cached
    rows = [UsageRow(("acme", "w", name), None, None, counts)]
    shown = growth.view(growth.Seen([], rows, {}), VIEWER, {}, NOW)
    assert shown["rest"].startswith(said)
