"""No test of `make test` sleeps for long: it moves its clock (tests/clock.py), waits for a condition (testing/waiting.py), or
dates rows back. A test that needs real time is `slow`. What is seen here are sleeps of Python by constant numbers in tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sets import SLOW

MOST_SECONDS = 0.2
SLEEPS = {"asyncio.sleep", "time.sleep", "sleep"}
Constants = dict[str, float]


def number(node: ast.expr, constants: Constants) -> float | None:
    """What an expression of numbers and of the module's constants comes to; None: something else is in it."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, op=op, right=right):
            one, two = number(left, constants), number(right, constants)
            if one is None or two is None:
                return None
            return one * two if isinstance(op, ast.Mult) else one + two if isinstance(op, ast.Add) else None
    return None


def sleeps(node: ast.AST, constants: Constants) -> Iterator[str]:
    """The sleeps that are too long, outside of what is slow."""
    match node:
        case ast.FunctionDef(decorator_list=marks) | ast.AsyncFunctionDef(decorator_list=marks):
            if "pytest.mark.slow" in map(ast.unparse, marks):
                return
        case ast.Call(func=func, args=[seconds]) if ast.unparse(func) in SLEEPS:
            if (number(seconds, constants) or 0) > MOST_SECONDS:
                yield f"line {node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from sleeps(child, constants)


def found(source: str) -> list[str]:
    """The sleeps of a file that are too long."""
    if "sleep(" not in source or SLOW in source:
        return []
    tree, constants = ast.parse(source), Constants()
    for each in tree.body:
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
                seconds := number(value, constants)
            ) is not None:
                constants[name] = seconds
    return list(sleeps(tree, constants))


def test_no_test_of_make_test_sleeps_for_long() -> None:
    files = [path for name in ("test_*.py", "conftest.py") for path in Path(__file__).parent.rglob(name)]
    assert len(files) > 300
    long = {str(path): lines for path in files if (lines := found(path.read_text()))}
    assert long == {}


def test_a_long_sleep_is_found_and_one_in_a_slow_test_is_not() -> None:
    fast = "PAUSE = 0.1\nasync def test_it():\n    await asyncio.sleep(3 * PAUSE)\n    await asyncio.sleep(PAUSE)\n"
    assert found(fast) == ["line 3: asyncio.sleep(3 * PAUSE)"]
    assert found("@pytest.mark.slow\ndef test_it():\n    time.sleep(1)\n") == []
    assert found(f"{SLOW}\ndef test_it():\n    time.sleep(1)\n") == []
