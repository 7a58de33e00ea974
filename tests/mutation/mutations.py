"""Seeded mutations: how many small faults in the arithmetic that numbers rest on do the tests notice?

    python tests/mutation/mutations.py                     # 200 mutations, table to docs/mutations.csv
    python tests/mutation/mutations.py --count 20 --seed 2 --out /tmp/some.csv

A mutation changes one operator, comparison, constant or call (`min` to `max`) in one of the modules of
mutations.toml, drawn at random from all places, as many from each module as it has places. It is killed if the
tests named there fail or hang. What survives is a fault that no test would notice, or code that does nothing.
"""

from __future__ import annotations

import argparse
import ast
import csv
import multiprocessing
import os
import random
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
TARGETS = Path(__file__).with_name("mutations.toml")
LIMIT_SECONDS = 240
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*", ast.FloorDiv: "/", ast.Mod: "*",
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A change of the text between two places of a module, in bytes."""

    module: str  # path below the checkout
    line: int
    begin: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        """The mutated source."""
        return source[: self.begin] + self.text.encode() + source[self.end :]


class Places(ast.NodeVisitor):
    """Collects all mutations of one module; annotations, messages and docstrings are left alone."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module, self.source = module, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found: list[Mutation] = []

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _add(self, node: ast.expr, begin: int, end: int, text: str) -> None:
        self.found.append(Mutation(module=self.module, line=node.lineno, begin=begin, end=end, text=text))

    def _between(self, left: ast.expr, right: ast.expr, text: str) -> None:
        """Replaces the operator between two operands; brackets around them stay."""
        begin, end = self._span(left)[1], self._span(right)[0]
        operator = self.source[begin:end]
        core = operator.strip(b" ()\n")
        if not core or b"\n" in core or b"#" in core:
            return
        at = begin + operator.index(core)
        self._add(left, at, at + len(core), text)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for index, operator in enumerate(node.ops):
            self._between(operands[index], operands[index + 1], COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS and not any(
            isinstance(side, ast.JoinedStr)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in (node.left, node.right)
        ):
            self._between(node.left, node.right, OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._between(node.values[0], node.values[1], "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        begin, _ = self._span(node)
        operand, _ = self._span(node.operand)
        if isinstance(node.op, ast.Not | ast.USub):
            self._add(node, begin, operand, "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        begin, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(node, begin, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, begin, end, str(node.value + 1))
        elif isinstance(node.value, float):
            self._add(node, begin, end, repr(node.value * 1.25))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._add(node.func, *self._span(node.func), CALLS[node.func.id])
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """No annotation."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_Raise(self, node: ast.Raise) -> None:
        """No message."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """No text; and until Python 3.12 it says nothing right about places."""


def places(module: str) -> list[Mutation]:
    """All mutations of a module, in order."""
    source = (TOP / module).read_bytes()
    visitor = Places(module, source)
    visitor.visit(ast.parse(source))
    return [mutation for mutation in visitor.found if _compiles(mutation.of(source))]


def draw(modules: list[str], count: int, seed: int) -> list[Mutation]:
    """`count` mutations, drawn without replacement from all places of all modules."""
    everything = [mutation for module in modules for mutation in places(module)]
    return sorted(
        random.Random(seed).sample(everything, min(count, len(everything))),  # noqa: S311
        key=lambda mutation: (mutation.module, mutation.begin),
    )


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutation", "exec")
    except SyntaxError:
        return False
    return True


def killed(mutation: Mutation | None, tests: list[str]) -> bool:
    """Whether the tests notice: run in a fork, so that libraries are imported once for all mutations."""
    child = os.fork()
    if child == 0:
        _run(mutation, tests)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def _run(mutation: Mutation | None, tests: list[str]) -> None:
    """Never returns; the exit status is pytest's."""
    import signal

    import pytest

    os.setsid()
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(LIMIT_SECONDS)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    if mutation:
        module = TOP / mutation.module
        _serve(module, mutation.of(module.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", *tests])
    os._exit(int(status))


def _serve(path: Path, text: bytes) -> None:
    """Let the import system find `text` where the file at `path` is asked for."""
    from importlib.machinery import SourceFileLoader

    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> object:
        if Path(self.path).resolve() == path.resolve():
            return compile(text, self.path, "exec")
        return original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment]


def _preload() -> None:
    """What takes long to import and is not mutated."""
    import click
    import matplotlib
    import numpy
    import pandas
    import pydantic
    import pytest
    import rich.console
    import scipy.stats

    del click, matplotlib, numpy, pandas, pydantic, pytest, rich, scipy


def _judge(item: tuple[Mutation, list[str]]) -> tuple[Mutation, bool]:
    return item[0], killed(*item)


def main() -> int:
    """Write the table; the exit status is 1 if fewer than nine in ten were killed."""
    parser = argparse.ArgumentParser(description="How many seeded faults do the tests notice?")
    parser.add_argument("--count", type=int, default=200, help="Number of mutations.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the drawing.")
    parser.add_argument("--module", help="Mutate only this module of mutations.toml.")
    parser.add_argument("--out", type=Path, default=TOP / "docs" / "mutations.csv", help="Table to write.")
    options = parser.parse_args()
    os.chdir(TOP)
    targets: dict[str, list[str]] = tomllib.loads(TARGETS.read_text(encoding="utf-8"))["tests"]
    if options.module:
        targets = {options.module: targets[options.module]}
    _preload()
    for module, tests in targets.items():
        if killed(None, tests):
            print(f"the tests of {module} fail without any mutation; mend them first", file=sys.stderr)
            return 1
    drawn = draw(list(targets), options.count, options.seed)
    results = []
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=8) as pool:
        items = [(mutation, targets[mutation.module]) for mutation in drawn]
        for mutation, dead in pool.imap(_judge, items):
            results.append((mutation, dead))
            verdict = "killed  " if dead else "SURVIVED"
            print(f"{len(results)}/{len(drawn)} {verdict} {' | '.join(_row(mutation))}", flush=True)
    num_killed = sum(dead for _, dead in results)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["module", "line", "was", "became", "killed"])
        for mutation, dead in results:
            writer.writerow([*_row(mutation), "yes" if dead else "no"])
    print(f"{num_killed} of {len(results)} mutations killed; table in {options.out}")
    return 0 if num_killed >= 0.9 * len(results) else 1


def _row(mutation: Mutation) -> Iterator[str]:
    source = (TOP / mutation.module).read_bytes()
    begin = source.rindex(b"\n", 0, mutation.begin) + 1
    end = source.index(b"\n", mutation.end)
    yield mutation.module
    yield str(mutation.line)
    yield source[begin:end].decode().strip()
    yield (
        (source[begin : mutation.begin] + mutation.text.encode() + source[mutation.end : end])
        .decode()
        .strip()
    )


if __name__ == "__main__":
    sys.exit(main())
