"""The columns of the ledger's lines that SQL and tables are made from."""

PARTS = ("tenant_id", "key_id", "workflow", "task", "critical", "variant", "family", "model", "kind", "endpoint")
PRICE = ("price_in", "price_cached", "price_out", "currency")
SKETCHES = ("first_token", "duration")
