"""How a statement says what its commit waits for. The server's default, and ours, is `durable`: the disk and the standbys.

`relaxed` commits do not wait (`synchronous_commit=off`): claim, finish, the steward's work. A lost relaxed commit
costs work, never data: the fence rejects the worker of a lost claim, the next heartbeat's answer shows a lost finish, and the
steward repeats the rest in its next round.

A connection cannot say it: behind a pooler, the next statement may run on another connection of the server. So it holds for one
transaction, and is said in one of two ways. Pure.

    RELAXED in its text     costs nothing; for statements that run for each chunk
    a statement ahead       for all others: sent with it in one implicit transaction
"""

import re
from dataclasses import dataclass
from functools import lru_cache

# A condition that is always true. It refers to no row, so the server evaluates it once, and also where there is no row.
RELAXED = "(select set_config('synchronous_commit', 'off', true)) = 'off'"

_CHANGES = re.compile(r"\b(insert|update|delete|merge|truncate|copy)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms statements are sent. `ahead`: the statement that sets them for a transaction; empty: the server's own.

    `begin`: the same as first statement of an explicit transaction. It is no query, so the isolation may still be chosen.
    `always`: `ahead` goes ahead of statements that only read, too. `waits`: commits wait for the disk and the standbys.
    """

    ahead: str = ""
    begin: str = ""
    always: bool = False
    waits: bool = False

    def precede(self, statement: str) -> bool:
        """Whether `ahead` has to be sent with this statement, which begins a transaction."""
        return bool(self.ahead) and (self.always or (changes(statement) and RELAXED not in statement))


DURABLE = Terms(waits=True)
UNWAITED = Terms("select set_config('synchronous_commit', 'off', true)", "set local synchronous_commit = off")
# For processes that only look: nothing can be written, and no statement runs for long or waits for a lock.
READING = Terms(
    "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', '500ms', true),"
    " set_config('lock_timeout', '50ms', true)",
    "set local transaction_read_only = on; set local statement_timeout = '500ms'; set local lock_timeout = '50ms'",
    always=True,
)


@lru_cache(maxsize=1024)
def changes(statement: str) -> bool:
    """Whether the statement may have something to commit. What only reads has nothing to wait for, and a utility statement, such
    as VACUUM, cannot share its transaction.
    """
    return _CHANGES.search(statement) is not None
