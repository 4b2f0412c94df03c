"""The use case: take a batch in, tell how it stands, settle it."""
