"""What a process has found that does not fit in the audit log. Each is logged and counted once."""

import structlog
from prometheus_client import Counter

_MOST = 1000  # the command `audit verify` shows all

log = structlog.get_logger("audit")


class Problems:
    """Those of one process, with the metric that counts them."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._reported: set[str] = set()

    def report(self, problem: str) -> None:
        """Report a problem, unless it is known."""
        if problem not in self._reported and len(self._reported) < _MOST:
            self._reported.add(problem)
            self._counter.inc()
            log.error("audit.broken", problem=problem)

    def report_chain(self, account: str, problem: str) -> None:
        """Report a problem of a chain. An empty account is that of the installation."""
        self.report(f"{account or 'the installation'}: {problem}")
