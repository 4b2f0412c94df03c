"""Benchmarks: each runs the real thing beside its baseline and prints one JSON object as its last line."""
