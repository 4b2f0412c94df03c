"""`python -m tests.mutants`: see `tests.mutants.mutants`."""

import sys
import tempfile
from pathlib import Path

from tests.mutants import mutants


def main(words: list[str]) -> int:
    """List, or run. Returns the exit code: 1 if a fault was not seen."""
    found = mutants.mutants().values()
    if not words:
        for each in sorted(found, key=lambda each: each.promise):
            print(f"{each.promise:>2}  {each.name}: {each.suffers}\n      {each.file}; {', '.join(each.tests)}")
        return 0
    chosen = [each for each in found if words == ["all"] or any(word in each.name for word in words)]
    lived = 0
    with mutants.copy(Path(tempfile.mkdtemp(prefix="mutants-"))) as folder:
        for each in chosen:
            seen, seconds, printed = mutants.run(folder, each)
            print(f"{each.promise:>2}  {each.name}: {'seen' if seen else 'NOT SEEN'}, {seconds:.0f} s", flush=True)
            if not seen:
                lived += 1
                print(printed)
    print(f"{len(chosen) - lived} of {len(chosen)} seen")
    return 1 if lived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
