"""Take a submit in: read its body, check its items, spool them."""
