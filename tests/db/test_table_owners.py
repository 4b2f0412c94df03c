"""The SQL of a package uses only tables of its own `tables.py`, except for those named here, each with its reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "app"

READS = {
    # Its rows are ranges of items, so the weight and the limits of their account, the engines of their pool, and the deliveries
    # that keep an old day are read in the same statement. Whether a batch is sealed is read with its items. Who brings what a
    # lease has used into the fair order depends on the oldest code that may run. A stage gets no more items once its packs are
    # known, and does not end while an item of it waits for an answer from outside. Work that no budget pays asks for no engine,
    # and a turn that grows costs more at the price of its line.
    "queue": {
        "budget",
        "line",
        "tenant",
        "engine",
        "pool",
        "event",
        "delivery",
        "endpoint",
        "batch_key",
        "pipeline",
        "stage",
        "parked",
    },
    # The lease of the worker beside an engine decides whether the engine is alive, and its chunks whether it is idle.
    "engines": {"worker", "chunk", "batch"},
    # The output files of a batch are a view of its results.
    "files": {"batch"},
    # An event about items is written in the statement that stores their results (EMIT_ITEMS), and names batch and account.
    "webhooks": {"batch", "item_payload", "item_result", "tenant"},
    # The ledger is compared with what the queue has counted, a report names accounts, and a budget keeps its labels.
    # A line is removed once nothing refers to it: no batch, chunk, delta or item.
    "metering": {"tenant", "batch", "removed_counts", "budget", "chunk", "batch_delta", "item_payload"},
    # What is reserved for a chunk is in its row, and changes in the statement that changes its state or its model. What it cost
    # is that of its line.
    "budgets": {
        *("chunk", "batch", "batch_delta", "item_payload", "item_result", "sched"),
        *("pool", "tenant", "line", "usage", "usage_day", "answer_length"),
    },
    # What an account uses of its quotas is counted where it lies, so that no counter can drift.
    "admission": {"batch", "batch_delta", "pipeline", "chunk", "file", "upload", "upload_part"},
    # A policy is tried on samples, whose accounts it names, and on the batches that are open.
    "policy": {"tenant", "batch", "line", "chunk"},
    # A session names its account, and an account that is being deleted opens nothing.
    "access": {"tenant"},
    # Its pages show everything, and write nothing: its pool cannot.
    "console": {
        *(
            "batch",
            "batch_phase",
            "batch_error",
            "item_payload",
            "item_result",
        ),
        *(
            "worker",
            "tenant",
            "api_key",
            "engine",
            "pool",
            "line",
            "event",
            "delivery",
            "endpoint",
            "file",
            "file_batch",
        ),
        *("attempt", "decision", "engine_sample", "engine_minute"),
    },
    # A stage is a batch, whose items are those of the stage; its account and its line say what the policy makes of them, and
    # what they cost. What was not handed on yet is counted.
    "pipelines": {"batch", "batch_key", "handoff", "item_payload", "item_result", "line", "tenant"},
    # A change names its account.
    "changes": {"tenant"},
    # A turn of a conversation ends with its batch, is kept as long as its account says, and takes its key with it.
    "sessions": {"batch", "tenant", "turn_key"},
    # Use cases: everything that an account has, and what the installation does.
    "batches": {
        "tenant",
        "api_key",
        "endpoint",
        "file",
        "batch",
        "sched",
        "delivery",
        "line",
        "pool",
        "engine",
        "usage",
        *("batch_phase", "pool_status", "worker", "pipeline", "session"),
        # Whether anything waits for a steward that rests.
        *("chunk", "batch_delta", "sched_delta", "handoff", "turn", "audit_pending", "budget"),
    },
}
WRITES = {
    # Chunks become ready, are taken back, cut and moved together with what is reserved for them.
    "budgets": {"chunk", "batch", "batch_delta", "item_payload", "sched"},
    # Who takes the engine of a lost worker marks that its loss is noted.
    "engines": {"worker"},
    # A key that seals no turn any more is destroyed.
    "sessions": {"turn_key"},
    # Retention deletes a batch, its events and its parked items in one transaction. Stages begin, and end with their account, in
    # the statements that change their batches, and the files of a batch are listed from the statement on that ends it.
    "queue": {"event", "delivery", "parked", "pipeline", "stage", "file_batch"},
    # Children are written in the transaction that takes the markers of their parents, an input in the one that copies it.
    "pipelines": {"batch", "batch_delta", "item_result"},
}


def owners() -> dict[str, str]:
    """The package that defines each table."""
    found = {}
    for path in APP.glob("*/*tables.py"):
        for name in re.findall(r'= Table\(\s*"(\w+)"', path.read_text()):
            found[name] = path.parent.name
    return found


def texts(path: Path) -> Iterator[str]:
    """The string literals of a module, without docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def used(package: str, pattern: str) -> set[str]:
    """Tables of other packages that the statements of a package name in this way."""
    owner = owners()
    names = {
        name for path in (APP / package).rglob("*sql.py") for text in texts(path) for name in re.findall(pattern, text)
    }
    return {name for name in names if owner.get(name, package) != package}


def read(package: str) -> set[str]:
    """Tables of other packages that a package reads: `from batch`, `from ending e, tenant t`."""
    return used(package, r"\b(?:from|join|using)\s+(\w+)") | used(package, r",\s+(\w+) \w\b")


PACKAGES = sorted({path.relative_to(APP).parts[0] for path in APP.rglob("*sql.py")})


def test_the_tables_of_every_package_are_known() -> None:
    assert {
        "batch": "queue",
        "tenant": "tenants",
        "engine": "engines",
        "event": "webhooks",
        "file": "files",
    }.items() <= (owners().items())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_reads_only_its_own_tables_and_those_named_here(package: str) -> None:
    assert read(package) - WRITES.get(package, set()) <= READS.get(package, set())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_writes_only_its_own_tables_and_those_named_here(package: str) -> None:
    written = used(package, r"\b(?:insert into|delete from|copy|update)\s+(\w+)")
    assert written <= WRITES.get(package, set())


def test_no_exception_is_obsolete() -> None:
    for package, tables in READS.items():
        assert tables <= read(package), package
