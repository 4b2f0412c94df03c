"""Claims about engines whose workers fail: how long they rest, and which errors are new."""

from workers.gpu.failed_engines import FailedEngines


def test_each_failure_doubles_the_pause_up_to_the_longest() -> None:
    engines, now = FailedEngines((5, 60)), 0.0
    pauses = []
    for _ in range(6):
        engines.failed("a", "wrong model", now)
        pauses.append(next(second for second in range(100) if not engines.rests("a", now + second)))
        now += 100
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert not engines.rests("b", now - 100)


def test_a_cause_is_new_once_and_again_after_the_engine_worked() -> None:
    engines = FailedEngines((5, 60))
    causes = ["wrong model", "wrong model", "wrong key", "wrong model"]
    assert [engines.failed("a", cause, 0) for cause in causes] == [True, False, True, True]
    assert engines.failed("b", "wrong model", 0)
    engines.worked("a")
    assert not engines.rests("a", 1)
    assert engines.failed("a", "wrong model", 0)
    assert not engines.rests("a", 5)
