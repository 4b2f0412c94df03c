"""What budgets have to know of counted results, as the queue adds it up. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class UsedSum:
    """Tokens that results of a line used, which ended within 15 minutes of `at`. `cached` is a part of `prompt`."""

    at: datetime
    line_id: int
    prompt: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True)
class ReturnedSum:
    """What was held for chunks of a lane and is not any more; what their results used, and the most that they could have.

    `cost` and `worst` are in 10^-9 of the currency, the rest in tokens. `line_id` None: the chunks had no results.
    """

    lane_id: int
    line_id: int | None
    cost: int
    tokens: int
    prompt: int
    cached: int
    output: int
    worst: int
    worst_tokens: int


@dataclass(frozen=True, slots=True)
class MoneySums:
    """The sums of the deltas that one fold has counted."""

    used: tuple[UsedSum, ...] = ()
    returned: tuple[ReturnedSum, ...] = ()
