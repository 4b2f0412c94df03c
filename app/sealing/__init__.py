"""Encryption of what callers sent and what engines answered: sealed forms, key providers, and the keys of batches and files."""
