"""Throughput and latency of the durable queue, compared with two other queues."""
