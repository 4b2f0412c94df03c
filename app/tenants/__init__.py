"""Tenants (accounts) and their API keys. `service.authenticate` checks a key."""
