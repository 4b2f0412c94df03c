"""The steward without ledger and budgets."""

from benchmarks.governance.bare import main

main(["workers.steward"])
