"""Fakes and helpers that both the tests and the benchmarks use. They are not installed with the wheel."""
