"""Change one thing at a time in what must not be wrong, and see whether its tests notice.

`python scripts/mutate.py PART [--mutants 100] [--seed N]`, in a checkout that scripts/test has installed. Every mutant
is made in a copy of the checkout, never here. Ends with 1 when fewer than 85 % are noticed; lists those that survive.
The seed is printed: with it, the same mutants are made again.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WANTED_PERCENT = 85


class Part(NamedTuple):
    """Sources to change, and the tests that should notice."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = {
    "delivery": Part(("lens_core/delivery/**/*.py",), ("tests/lens_core/delivery",)),
    "pipeline": Part(("lens_core/pipeline/*.py",), ("tests/lens_core/pipeline", "tests/lens_core/delivery")),
    "ingest": Part(("lens_core/pipeline/ingest_gate.py",), ("tests/lens_core/pipeline",)),
    "postgresql": Part(
        ("plugins/sinks/postgresql/writer.py", "plugins/sinks/postgresql/rows.py"), ("tests/plugins/sinks/postgresql",)
    ),
    "hook": Part(
        ("plugins/sources/wandb_hook/lens_hook/sender.py", "plugins/sources/wandb_hook/lens_hook/worker.py"),
        ("tests/plugins/sources/wandb_hook",),
    ),
}
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}


class Mutant(NamedTuple):
    """One changed file: where, what it says now, and the whole text."""

    path: str
    line: int
    says: str
    text: str


def changed(node: ast.AST) -> ast.AST | None:
    """Another node in the place of this one; None if there is nothing to change."""
    other: ast.AST = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARED:
            other.ops[0] = _COMPARED[type(op)]()
        case ast.BinOp() | ast.AugAssign() if type(other.op) in _COMPUTED:
            other.op = _COMPUTED[type(other.op)]()
        case ast.BoolOp():
            other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return other.operand
        case ast.Constant(value=bool()):
            other.value = not other.value
        case ast.Constant(value=int() as value):
            other.value = value + 1
        case ast.Expr(value=ast.Call() | ast.Await()):
            return ast.Pass()
        case ast.Return(value=ast.expr()):
            other.value = ast.Constant(None)
        case ast.Raise():
            return ast.Pass()
        case _:
            return None
    return other


class Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, ast.copy_location(new, old)

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace it where it is found."""
        return self._new if node is self._old else self.generic_visit(node)


def places(tree: ast.Module) -> Iterator[int]:
    """The numbers, in the order of `ast.walk`, of nodes within functions that can be changed."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    }
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in inside and changed(node) is not None:
            yield number


def mutants_of(part: Part, count: int, rng: random.Random) -> list[Mutant]:
    """A random sample over all the part's sources."""
    paths = sorted({path for pattern in part.sources for path in ROOT.glob(pattern)})
    every = [(path, number) for path in paths for number in places(ast.parse(path.read_text()))]
    found = []
    for path, number in rng.sample(every, min(count, len(every))):
        tree = ast.parse(path.read_text())
        node = list(ast.walk(tree))[number]
        new = changed(node)
        assert new is not None
        says = f"{ast.unparse(node)[:80]}  →  {ast.unparse(new)[:80]}"
        text = ast.unparse(ast.fix_missing_locations(Replace(node, new).visit(tree)))
        found.append(Mutant(str(path.relative_to(ROOT)), getattr(node, "lineno", 0), says, text + "\n"))
    return found


def near(source: str, tests: tuple[str, ...]) -> list[str]:
    """The files of tests that have the source's name in theirs: they notice most, and so run before all others."""
    name = Path(source).stem.strip("_")
    found = {str(path.relative_to(ROOT)) for folder in tests for path in (ROOT / folder).rglob(f"test_*{name}*.py")}
    return sorted(found)


def tests_pass(work: Path, tests: Sequence[str], seconds: float) -> bool:
    """Whether the part's tests end well in the copy, within the time."""
    # The editable installation leads to the checkout; the copy comes before it, under both of its names.
    paths = [str(work), str(work / "names"), str(work / "plugins" / "sources" / "wandb_hook")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LENS_HYPOTHESIS_PROFILE": "quick"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def main() -> int:
    """Make the mutants of a part, try its tests with each; 1 if too many survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    part = PARTS[given.part]
    print(f"seed {given.seed}", flush=True)
    mutants = mutants_of(part, given.mutants, random.Random(given.seed))
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".venv*", ".git", ".*_cache", "__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT, work, ignore=ignored)
        (work / "names").mkdir()
        (work / "names" / "lens_plugins").symlink_to("../plugins")
        began = time.monotonic()
        if not tests_pass(work, part.tests, 3600):
            print("the tests fail without any change", file=sys.stderr)
            return 2
        seconds = 5 * (time.monotonic() - began) + 30
        for number, mutant in enumerate(mutants, 1):
            path = work / mutant.path
            whole = path.read_text()
            path.write_text(mutant.text)
            first = near(mutant.path, part.tests)
            noticed = bool(first) and not tests_pass(work, first, seconds)
            noticed = noticed or not tests_pass(work, part.tests, seconds)
            path.write_text(whole)
            print(
                f"{number:4} {'noticed' if noticed else 'SURVIVES'}  {mutant.path}:{mutant.line}  {mutant.says}",
                flush=True,
            )
            survivors += [] if noticed else [mutant]
    percent = 100 * (len(mutants) - len(survivors)) / len(mutants)
    print(f"{given.part}, seed {given.seed}: {percent:.0f} % of {len(mutants)} mutants are noticed")
    return int(percent < WANTED_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
