"""Files: what was uploaded, kept in the object store, and what is known of it."""
