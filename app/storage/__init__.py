"""Plumbing to an object store: a local folder, or S3 and what speaks its protocol. Holds bodies too large for rows."""
