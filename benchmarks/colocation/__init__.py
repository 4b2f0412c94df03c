"""Synchronous and batch requests on one engine: the latency and the throughput under each scheduling policy."""
