"""Synchronous and batch requests on one engine: what each scheduling policy costs the former and yields the latter."""
