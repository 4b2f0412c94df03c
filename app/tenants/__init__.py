"""Who is calling: tenants and their API keys."""
