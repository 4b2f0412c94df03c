"""What a door has counted since it started: requests and tokens of each account, faults, and the callers inside."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

ANYONE = ""  # the account of callers while no keys are required
_TAIL_BYTES = 64 * 1024  # of an answer's end, where its usage is
_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*\{')
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_ANSWER = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')


@dataclass(slots=True)
class AccountUsage:
    """Of one account. `estimated`: requests whose tokens are estimates, because their answer reports no usage."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: int = 0


@dataclass(slots=True)
class DoorUsage:
    """Counters of one server process.

    `open`: callers inside now. `ours`: requests of workers and gateways. `announced`: events that reached a worker. `refused`:
    by HTTP status. `cleaned`: bodies that a field was removed from. `faults`: errors of the door's own, by step; each let its
    request through.
    """

    open: int = 0
    ours: int = 0
    announced: int = 0
    cleaned: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    accounts: defaultdict[str, AccountUsage] = field(default_factory=lambda: defaultdict(AccountUsage))

    def add(self, account: str, prompt_tokens: int, completion_tokens: int, *, estimated: bool) -> None:
        """Count the tokens of one request."""
        usage = self.accounts[account]
        usage.prompt_tokens += prompt_tokens
        usage.completion_tokens += completion_tokens
        usage.estimated += estimated

    def document(self) -> bytes:
        """JSON."""
        accounts = {name: asdict(usage) for name, usage in self.accounts.items()}
        counts = {name: getattr(self, name) for name in ("open", "ours", "announced", "cleaned")}
        return json.dumps({**counts, "refused": self.refused, "faults": self.faults, "accounts": accounts}).encode()

    def exposition(self) -> bytes:
        """Prometheus text."""
        lines = [
            "# TYPE slackwater_door_open_requests gauge",
            f"slackwater_door_open_requests {self.open}",
            "# TYPE slackwater_door_own_requests_total counter",
            f"slackwater_door_own_requests_total {self.ours}",
            "# TYPE slackwater_door_cleaned_bodies_total counter",
            f"slackwater_door_cleaned_bodies_total {self.cleaned}",
            "# TYPE slackwater_door_refused_requests_total counter",
            *(f'slackwater_door_refused_requests_total{{status="{s}"}} {n}' for s, n in self.refused.items()),
            "# TYPE slackwater_door_faults_total counter",
            *(f'slackwater_door_faults_total{{step="{step}"}} {n}' for step, n in self.faults.items()),
            "# TYPE slackwater_door_requests_total counter",
            *(f'slackwater_door_requests_total{{account="{a}"}} {u.requests}' for a, u in self.accounts.items()),
            "# TYPE slackwater_door_tokens_total counter",
        ]
        for account, usage in self.accounts.items():
            lines.append(f'slackwater_door_tokens_total{{account="{account}",kind="prompt"}} {usage.prompt_tokens}')
            lines.append(
                f'slackwater_door_tokens_total{{account="{account}",kind="completion"}} {usage.completion_tokens}'
            )
        return "\n".join([*lines, ""]).encode()


def usage_of(parts: Iterable[bytes]) -> tuple[int, int] | None:
    """Prompt and completion tokens that the last parts of an answer report; None: they report none."""
    tail = b"".join(part[-_TAIL_BYTES:] for part in parts)
    starts = [match.end() for match in _USAGE.finditer(tail)]
    if not starts:
        return None
    prompt, answer = _PROMPT.search(tail, starts[-1]), _ANSWER.search(tail, starts[-1])
    if prompt is None:
        return None
    return int(prompt[1]), int(answer[1]) if answer else 0
