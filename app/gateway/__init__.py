"""The gateway: relays synchronous requests to ready engines, and announces them to the engines' workers beforehand."""
