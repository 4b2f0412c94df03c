"""Claims about which connections are admitted beside busy and idle ones, without a socket."""

from app.serving.connection_limits import RESERVE, RESERVED, ConnectionEntry, ConnectionLimits

MOST = 4


class Client:
    """A connection that knows whether it was dropped."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def entered(limits: ConnectionLimits, count: int, host: str = "192.0.2.1", *, busy: bool) -> list[Client]:
    """New connections of which each was let in, somehow."""
    clients = [Client() for _ in range(count)]
    for client in clients:
        assert limits.enter(client, host) is not ConnectionEntry.REFUSED
        if busy:
            limits.work(client)
    return clients


def test_pairs_of_an_idle_and_a_busy_connection_leave_the_reserve_to_monitoring() -> None:
    limits = ConnectionLimits(MOST, 100)
    entered(limits, MOST, busy=True)
    for _ in range(RESERVE * 2):
        assert limits.enter(Client(), "192.0.2.1") is ConnectionEntry.RESERVE
        assert (
            limits.enter(Client(), "192.0.2.1") is ConnectionEntry.RESERVE
        )  # whatever of the first one: no place is free
    assert limits.enter(Client(), "192.0.2.2") is ConnectionEntry.RESERVE


def test_idle_connections_are_closed_only_if_that_admits_the_new_one() -> None:
    limits = ConnectionLimits(MOST, 100)
    entered(limits, MOST, busy=True)
    reserve = entered(limits, RESERVE, busy=False)
    assert not any(client.dropped for client in reserve)
    assert limits.enter(Client(), "192.0.2.2") is ConnectionEntry.RESERVE
    assert [client.dropped for client in reserve] == [True] + [False] * (RESERVE - 1)


def test_when_ordinary_connections_are_idle_again_a_new_one_takes_the_place_of_one() -> None:
    limits = ConnectionLimits(MOST, 100)
    ordinary = entered(limits, MOST, busy=True)
    probes = entered(limits, 2, busy=True)
    for client in ordinary:
        limits.rest(client)
    assert limits.enter(Client(), "192.0.2.2") is ConnectionEntry.FREE
    assert [client.dropped for client in ordinary] == [True, True, True, False]
    assert not any(client.dropped for client in probes)


def test_an_address_has_so_many_connections_and_loses_its_own_oldest_idle_one() -> None:
    limits = ConnectionLimits(100, MOST)
    own, others = entered(limits, MOST, busy=False), entered(limits, MOST, "192.0.2.2", busy=False)
    entered(limits, 1, busy=False)
    assert [client.dropped for client in own + others] == [True] + [False] * (2 * MOST - 1)
    for client in own:
        limits.work(client)
    last = entered(limits, 1, busy=True)
    assert limits.enter(Client(), "192.0.2.1") is ConnectionEntry.REFUSED
    assert not last[0].dropped
    entered(limits, 2, "192.0.2.3", busy=True)


def test_what_monitoring_reads_is_answered_on_the_reserve() -> None:
    assert set(RESERVED) == {"/health", "/ready", "/metrics", "/console/health"}
