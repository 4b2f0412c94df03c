"""The parts of benchmarks.gateway that do no I/O count what their docstrings state."""

import orjson

from benchmarks.gateway.http_client import TimedAnswer
from benchmarks.gateway.prefix_cache import BLOCK_TOKENS, SimulatedPrefixCache
from benchmarks.gateway.streams import coalesced, complete, delays_ms

TOKENS = list(range(4 * BLOCK_TOKENS))


def event(sent_at: float, text: str = "x") -> bytes:
    body = {"choices": [{"index": 0, "delta": {"content": text}}], "sent_at": sent_at}
    return b"data: " + orjson.dumps(body) + b"\n\n"


def test_an_event_read_with_one_sent_much_later_was_held_back() -> None:
    assert coalesced(TimedAnswer(0, 200, [(1.0, event(0.9)), (2.0, event(1.5) + event(2.0))])) == 1


def test_events_that_were_sent_together_may_come_together() -> None:
    assert coalesced(TimedAnswer(0, 200, [(1.0, event(0.999) + event(1.0) + b"data: [DONE]\n\n")])) == 0


def test_an_event_torn_over_two_reads_counts_as_come_with_the_second() -> None:
    whole = event(1.0)
    assert delays_ms(TimedAnswer(0, 200, [(1.5, whole[:20]), (2.0, whole[20:])])) == [1000.0]


def test_a_stream_is_complete_with_all_its_tokens_and_its_end() -> None:
    reads = [(1.0, event(1)), (2.0, event(2)), (3.0, b"data: [DONE]\n\n")]
    assert complete(TimedAnswer(0, 200, reads), 2)
    assert not complete(TimedAnswer(0, 200, reads), 3)
    assert not complete(TimedAnswer(0, 200, reads[:2]), 2)


def test_the_cache_finds_whole_blocks_but_never_the_last_token() -> None:
    cache = SimulatedPrefixCache(100)
    assert cache.hit("s", TOKENS) == 0
    cache.keep("s", TOKENS)
    assert cache.hit("s", TOKENS) == 3 * BLOCK_TOKENS
    assert cache.hit("s", [*TOKENS, 1]) == 4 * BLOCK_TOKENS
    assert cache.hit("s", [*TOKENS[: BLOCK_TOKENS + 3], *TOKENS]) == BLOCK_TOKENS


def test_another_salt_and_another_begin_find_nothing() -> None:
    cache = SimulatedPrefixCache(100)
    cache.keep("s", TOKENS)
    assert cache.hit("t", TOKENS) == 0
    assert cache.hit("s", [9, *TOKENS]) == 0


def test_the_least_recently_used_blocks_go_the_last_of_a_prompt_first() -> None:
    cache = SimulatedPrefixCache(5)
    cache.keep("s", TOKENS)
    cache.keep("t", TOKENS[: 2 * BLOCK_TOKENS])
    assert cache.hit("s", [*TOKENS, 1]) == 3 * BLOCK_TOKENS
    assert cache.hit("t", [*TOKENS, 1]) == 2 * BLOCK_TOKENS
