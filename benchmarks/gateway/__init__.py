"""What the gateway adds to synchronous requests, and what its session affinity brings."""
