"""What the reason codes of a waiting batch mean, in one sentence with numbers and units. Pure."""

_BATCH = {
    "paused": "the batch is paused; resume it to go on",
    "cancelling": "the batch is being cancelled; items in an engine come to their end",
    "expiring": "the batch has expired; items in an engine come to their end",
    "settling": "every item is done; the batch is being closed",
    "running": "with an engine: {leased} of {chunks}",
    "backoff": "{delayed} to be tried again, the next in {pause}",
    "no_engine": "no engine serves {model} now; the batch is kept until one does",
    "engines": "{count} {serves} {model}",
    "account_limit": "the account has {inflight} in flight, limit {limit}",
    "fair_share": "{ahead} of this account first; {accounts} at work, this one's share is {share}",
    "allowance_spent": "every place for batch work is taken, {places} in all",
    "next": "next in line",
    "eta": "done in about {eta}, at {pace} a second (confidence: {confidence})",
    "eta_unknown": "no estimate yet: no engine is expected, or its pace was not measured",
}

CODES = frozenset(_BATCH)


def batch_message(code: str, **facts: object) -> str:
    """The sentence of a code about a batch or its place in the order. Raises KeyError if a fact is missing."""
    return _BATCH[code].format(**facts)
