"""Finds sensitive values in texts: of requests, and of our own logs."""
