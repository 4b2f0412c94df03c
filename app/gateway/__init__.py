"""The gateway: relays synchronous requests to ready engines, and tells their workers in time."""
