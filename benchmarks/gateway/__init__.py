"""The latency that the gateway adds to synchronous requests, and the effect of its session affinity."""
