"""Every small fault that can be made in a module, and which of them a seed draws.

A mutation changes one operator, comparison, constant or call (`min` to `max`).
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
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
    was: str  # the whole line
    became: str

    def applied_to(self, source: bytes) -> bytes:
        """The mutated source."""
        return source[: self.begin] + self.text.encode() + source[self.end :]


class Places(ast.NodeVisitor):
    """Collects all mutations of one module; what cannot change a result is left alone.

    That is: annotations, decorators, docstrings, messages, and `zip`'s `strict`, which is an assertion.
    """

    def __init__(self, module: str, source: bytes) -> None:
        self.module, self.source = module, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.mutations: list[Mutation] = []

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _add(self, node: ast.expr, begin: int, end: int, text: str) -> None:
        first = self.source.rindex(b"\n", 0, begin) + 1
        last = self.source.index(b"\n", end)
        was = self.source[first:last].decode()
        became = (self.source[first:begin] + text.encode() + self.source[end:last]).decode()
        mutation = Mutation(
            module=self.module,
            line=node.lineno,
            begin=begin,
            end=end,
            text=text,
            was=was.strip(),
            became=became.strip(),
        )
        if _compiles(mutation.applied_to(self.source)):
            self.mutations.append(mutation)

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

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in OPERATORS:
            self._between(node.target, node.value, f"{OPERATORS[type(node.op)]}=")
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
            self._add(node, begin, end, repr(1.25 * node.value or 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._add(node.func, *self._span(node.func), CALLS[node.func.id])
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

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
    return sorted(visitor.mutations, key=lambda mutation: (mutation.begin, mutation.text))


def draw(modules: Sequence[str], count: int, seed: int) -> dict[str, list[Mutation]]:
    """`count` mutations of all modules together, without replacement.

    Each module has its share, and each line its own lot: a change elsewhere hardly changes what is drawn.
    """
    everything = {module: places(module) for module in modules}
    total = sum(map(len, everything.values()))
    exact = {module: min(count, total) * len(lines) / total for module, lines in everything.items()}
    shares = {module: math.floor(share) for module, share in exact.items()}
    by_rest = sorted(modules, key=lambda module: shares[module] - exact[module])
    for module in by_rest[: min(count, total) - sum(shares.values())]:
        shares[module] += 1
    return {
        module: sorted(
            sorted(everything[module], key=lambda mutation: _lot(mutation, seed))[: shares[module]],
            key=lambda mutation: mutation.begin,
        )
        for module in modules
    }


def _lot(mutation: Mutation, seed: int) -> str:
    return hashlib.sha256(f"{seed} {mutation.module} {mutation.was} {mutation.became}".encode()).hexdigest()


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutation", "exec")
    except SyntaxError:
        return False
    return True
