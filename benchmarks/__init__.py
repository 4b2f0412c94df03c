"""Benchmarks: each runs the real system beside a baseline and prints one JSON object as its last line."""
