"""Tenants (accounts) and their API keys. `service.authenticate` checks a key; `app.crypto.hash_secret` hashes its secret."""
