"""The API without ledger and budgets."""

from benchmarks.governance.bare import main

main(["app.api"])
