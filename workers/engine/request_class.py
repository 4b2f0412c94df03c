"""The class of a request is its priority in vLLM's scheduler: a lower number is served first, and 0 is vLLM's default."""

SYNC_PRIORITY = 0
BATCH_PRIORITY = 10  # from here on a request is batch work
