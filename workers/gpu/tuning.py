"""The constants of a GPU worker: pauses and limits that operators do not set. Tests pass shorter ones."""

from dataclasses import dataclass

MB = 2**20


@dataclass(frozen=True, slots=True)
class WorkerTuning:
    """In seconds, unless the name says otherwise. A pair is the first and the longest pause.

    Engine process: `restart_seconds` between two starts of an engine that does not come up; `engine_poll_seconds` between two
    checks of its process; `engine_stop_seconds` between SIGTERM and SIGKILL.
    Engine health: `health_seconds` between two checks; `inspection_seconds` between two looks at what a healthy engine serves;
    `unreachable_seconds` without an answer before that is logged; `adoption_seconds` between two looks at an attached engine
    whose model is not known yet; `probe_pause_seconds` between two one-token requests that ask whether it can be used.
    Items: `full_engine_seconds` before an item that a full engine refused comes back, half of it at least;
    `engine_death_seconds` before items of a dead engine come back; `item_retry_seconds` before items with transient errors
    come back; `suspect_wait_seconds` that a suspect waits at most until no synchronous request is in the engine.
    Several engines: `list_seconds` between two looks at their list; `missed_looks` without an address that the DNS had before
    its engine is let go; `answer_seconds` for one of them to answer at first; `failure_seconds`
    before one that failed is tried again; `full_looks` of a process without room until
    it looks whether engines have no worker.
    `notice_seconds` between two looks for the notice file.
    Results: `flush_bytes` in one statement; a larger result is stored alone.
    """

    restart_seconds: tuple[float, float] = (1.0, 60.0)
    engine_poll_seconds: float = 0.5
    engine_stop_seconds: float = 10.0
    health_seconds: float = 0.5
    inspection_seconds: float = 5.0
    unreachable_seconds: float = 5.0
    adoption_seconds: float = 1.0
    probe_pause_seconds: float = 1.0
    full_engine_seconds: float = 15.0
    engine_death_seconds: float = 1.0
    item_retry_seconds: tuple[float, float] = (60.0, 600.0)
    suspect_wait_seconds: float = 30.0
    list_seconds: float = 5.0
    missed_looks: int = 3
    answer_seconds: float = 5.0
    failure_seconds: tuple[float, float] = (5.0, 60.0)
    full_looks: int = 12
    notice_seconds: float = 0.5
    flush_bytes: int = 8 * MB


TUNING = WorkerTuning()
