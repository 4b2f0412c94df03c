"""The object store: a local folder, or S3 and compatible services. It holds uploads, and bodies too large for rows."""
