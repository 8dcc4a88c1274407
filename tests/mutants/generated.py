"""Mutants that are made by rule, of the modules of the core that decide.

A mutant differs from its module in one place: a comparison, `and` or `or`, a condition, a number, a
result, arithmetic, or a statement that is left out. How a module is read (annotations, decorators,
docstrings) stays. Of the tools, mutmut leaves out properties, such as `Snapshot.is_replay`, and
statements; cosmic-ray starts a process for each mutant, and changes `int | None` eleven times.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.deployment.fingerprint import parse

ROOT = Path(__file__).resolve().parents[2]
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
}
_HAS_MUTANTS = (ast.Compare, ast.BoolOp, ast.UnaryOp)  # of its own: no negation beside them
_LEFT_OUT = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
_STAYS = {"annotation", "returns", "decorator_list"}


@dataclass(frozen=True)
class Generated:
    """A mutant of a module of the core.

    :param name: where it is, and the line before and after
    :param text: the whole module
    """

    module: str
    name: str
    text: str


def generated(module: str) -> Iterator[Generated]:
    """Make all mutants of a module of the core."""
    tree = parse((ROOT / f"reliability/core/{module}.py").read_text())
    original = ast.unparse(tree)
    named: Counter[str] = Counter()
    for place, node in _nodes(tree, module):
        for field, changed in _changes(node):
            kept = getattr(node, field)
            setattr(node, field, changed)
            text = ast.unparse(tree)
            setattr(node, field, kept)
            lines = zip(original.splitlines(), text.splitlines(), strict=True)
            [(old, new)] = [(old.strip(), new.strip()) for old, new in lines if old != new]
            name = f"{place}: {old} -> {new}"
            named[name] += 1
            again = f" ({named[name]})" if named[name] > 1 else ""
            yield Generated(module, name + again, text)


def _nodes(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    """Return a node and all nodes within, each with the names of what it is in."""
    yield place, node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in _STAYS:
                own = f".{child.name}" if isinstance(child, ast.ClassDef | ast.FunctionDef) else ""
                yield from _nodes(child, place + own)


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Return the fields of a node that a mutant changes, each with what stands there then."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield "ops", [*ops[:place], other(), *ops[place + 1 :]]
        case ast.BoolOp(op=op):
            yield "op", ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "op", ARITHMETIC[type(op)]()
        case ast.UnaryOp(op=ast.USub()):
            yield "op", ast.UAdd()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "operand", _negated(operand)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if not isinstance(test, _HAS_MUTANTS):
                yield "test", _negated(test)
        case ast.comprehension(ifs=[test]) if not isinstance(test, _HAS_MUTANTS):
            yield "ifs", [_negated(test)]
        case ast.Constant(value=bool(value)):
            yield "value", not value
        case ast.Constant(value=int(value)):
            yield from (("value", value + by) for by in (-1, 1))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "value", ast.Constant(None)
    for field in ("body", "orelse"):
        found = getattr(node, field, None)
        statements: list[Any] = found if isinstance(found, list) else []  # not in `a if b else c`
        for place, one in enumerate(statements):
            is_text = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
            if isinstance(one, _LEFT_OUT) and not is_text:
                yield field, [*statements[:place], ast.Pass(), *statements[place + 1 :]]


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)
