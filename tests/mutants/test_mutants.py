"""Claims about the proofs: of each promise they notice the faults that break it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import mutants
from tests.mutants.mutants import Mutant

ALL = mutants.mutants()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mutants.copy(tmp_path_factory.mktemp("copy")) as made:
        yield made


def test_each_mutant_fits_the_code_and_is_seen_by_tests_that_its_promise_names() -> None:
    assert [problem for each in ALL.values() if (problem := each.problem())] == []
    for each in ALL.values():
        assert each.new != each.old
        assert set(each.tests) <= mutants.promises()[each.promise], each.name


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ALL.values(), ids=ALL)
def test_a_fault_is_seen(mutant: Mutant, folder: Path) -> None:
    seen, _, printed = mutants.run(folder, mutant)
    assert seen, f"{mutant.file} with this fault passes {mutant.tests}: {mutant.suffers}\n{printed}"
