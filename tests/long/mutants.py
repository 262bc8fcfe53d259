"""Small changes of a file's functions, by the operators of mutmut, and how one is put in place."""

from __future__ import annotations

import ast
import difflib
import gc
import inspect
import random
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType

import libcst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import Mutation, MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

# A function by its file, its name there and its first line.
Place = tuple[str, str, int]


class _Bodies(MutationVisitor):
    """Changes decorated functions too, which mutmut's own way of putting them in place cannot.

    Leaves out default values, which no code of the function holds, and what is raised: whether
    that happens is decided before, and its words are not code.
    """

    def _skip_node_and_children(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.FunctionDef):
            return False
        left_out = isinstance(node, libcst.Param | libcst.Raise)
        return left_out or super()._skip_node_and_children(node)


class Mutant:
    """A file with one change.

    Attributes:
        number: Of the change, in the order of the file.
        lines: Those of the file that the change is in.
        source: Of the file, changed.
    """

    def __init__(self, path: Path, number: int, lines: range, source: str) -> None:
        self.path, self.number, self.lines, self.source = path, number, lines, source

    def __str__(self) -> str:
        texts = (self.path.read_text(), self.source)
        change = difflib.unified_diff(*(text.splitlines() for text in texts), lineterm="", n=0)
        return "\n".join(list(change)[2:])

    def apply(self, functions: dict[Place, list[FunctionType]]) -> bool:
        """Give functions of this process the changed code; say whether it differs at all."""
        before, after = (_codes(text, self.path) for text in (self.path.read_text(), self.source))
        changed = [key for key in before if _content(before[key]) != _content(after[key])]
        for key in changed:
            for function in functions[_place(before[key])]:
                function.__code__ = after[key]
        return bool(changed)


def sample(path: Path, count: int, seed: int) -> tuple[list[Mutant], int]:
    """Return some of the changes of a file, in random order, and how many there are."""
    text = path.read_text()
    wrapper = MetadataWrapper(libcst.parse_module(text))
    visitor = _Bodies(mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    positions = wrapper.resolve(PositionProvider)
    inside = [
        mutation
        for mutation in visitor.mutations
        if isinstance(mutation.contained_by_top_level_function, libcst.FunctionDef)
    ]

    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]

    def mutant(number: int, mutation: Mutation) -> Mutant:
        node = mutation.original_node
        changed = module.deep_replace(node, mutation.mutated_node)
        assert isinstance(changed, libcst.Module)
        return Mutant(path, number, _lines(positions[node].start.line, statements), changed.code)

    numbers = list(range(len(inside)))
    random.Random(seed).shuffle(numbers)
    return [mutant(number, inside[number]) for number in numbers[:count]], len(inside)


def _lines(line: int, statements: list[ast.stmt]) -> range:
    """Return the lines of the statement that a line belongs to, without those of its body."""

    def lines_of(statement: ast.stmt) -> range:
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno
        return range(statement.lineno, max(last or 0, statement.lineno) + 1)

    return min((found for found in map(lines_of, statements) if line in found), key=len)


def functions_in(paths: Iterable[Path]) -> dict[Place, list[FunctionType]]:
    """Return the functions of some files that this process has, whoever holds them."""
    names = {str(path) for path in paths}
    found: dict[Place, list[FunctionType]] = {}
    for function in gc.get_objects():
        # Not isinstance, of which some objects make a call that warns.
        if type(function) is FunctionType and function.__code__.co_filename in names:
            found.setdefault(_place(function.__code__), []).append(function)
    return found


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(source: str, path: Path) -> dict[tuple[str, int], CodeType]:
    """Return the code of functions and methods by name and, where a name comes again, number."""
    found: dict[tuple[str, int], CodeType] = {}

    def search(outer: CodeType) -> None:
        for code in outer.co_consts:
            if isinstance(code, CodeType):
                # The body of a class has no variables of its own that are fast.
                if code.co_flags & inspect.CO_OPTIMIZED:
                    again = sum(name == code.co_qualname for name, _ in found)
                    found[code.co_qualname, again] = code
                else:
                    search(code)

    search(compile(source, str(path), "exec", dont_inherit=True))
    return found


def _content(code: CodeType) -> object:
    """Return what a function does, without the lines it is on."""
    constants = [
        _content(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, constants
