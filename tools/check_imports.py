"""Checks the structure of src/stower: layers, import circles, and sizes of files and functions.

The tables below say which packages a package may import; a new package is one row in one of them.
A pure layer uses no clock, thread, file, socket, log or unseeded random number: the shells own
these, so that the same events give the same writes everywhere. An import inside a function or for
type checkers only counts as any other. Exit code 1: a rule is broken, or there are no files.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

RULE: Final = "see ARCHITECTURE.md"
LINES_MAX: Final = 600  # arbitrary: a file of one purpose has stayed well below it
FUNCTION_LINES_MAX: Final = 70  # as TigerBeetle's style: a function that fits on a screen

# Package or top-level module: what it may import besides itself and stower/__init__.py.
PURE: Final = {
    "model": "",
    "cel": "model",
    "api": "model cel",
    "state": "model",
    "framework": "model state",
    "devices": "model state framework cel",
    "groups": "model state framework",
    "vms": "model state framework",
    "warm": "model state framework",
    "plugins": "model state framework devices groups vms warm",
    "engine": "model state framework devices groups vms warm",
    "assembly": "model state framework devices groups vms warm plugins engine",
    "controllers": "model state framework api vms",
    "driver": "model state framework devices",
}
CORE: Final = PURE["assembly"] + " assembly controllers driver"
SHELLS: Final = {
    "__init__": "",
    "live": CORE + " metrics pki garbage",
    "apiserver": CORE + " api pki garbage",
    "sim": CORE + " api cel",
    "record": CORE,
    "metrics": CORE,
    "pki": "",
    "garbage": "",
}
ALL: Final = " ".join(PURE | SHELLS)
COMPOSERS: Final = {"bench": ALL, "dashboard": ALL + " bench", "cli": ALL + " bench dashboard"}
TABLES: Final = PURE | SHELLS | COMPOSERS
LAYERS: Final = {name: {name, "__init__", *row.split()} for name, row in TABLES.items()}

# Modules that no pure layer imports. importlib hides imports from this checker; pathlib and
# tempfile are there to reach files; a log is an output that no replay compares (the engine
# collects observations, and the shell logs them).
BANNED: Final = (
    "asyncio concurrent http importlib io logging multiprocessing os pathlib random secrets "
    "selectors socket sqlite3 ssl subprocess tempfile threading time urllib uuid"
)
BANNED_CALLS: Final = ("__import__", "eval", "exec", "open", "print")
BANNED_CLOCKS: Final = ("now", "today", "utcnow")  # of datetime and date, called or handed on
CHANCE: Final = ("numpy", "random")
BANNED_EVERYWHERE: Final = ("pickle",)  # loading it runs what it says


class Source(NamedTuple):
    """One Python file below src. `parts`: its path there, the last part without .py."""

    path: Path
    parts: tuple[str, ...]
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """The dotted name of the module; of an __init__.py, the name of the package."""
        return ".".join(self.parts).removesuffix(".__init__")

    @property
    def package(self) -> list[str]:
        """The package that relative imports start from."""
        return list(self.parts[:-1])


def read(path: Path, folder: Path) -> Source:
    """Reads and parses a file below the folder."""
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(folder).with_suffix("").parts
    return Source(path, parts, text, ast.parse(text, path))


def origin(node: ast.ImportFrom, package: list[str]) -> list[str]:
    """Returns the dotted name after `from`, split; relative names are resolved."""
    start = package[: max(0, len(package) + 1 - node.level)] if node.level else []
    return [*start, *(node.module or "").split(".")] if node.module else start or [""]


def imports(node: ast.AST, package: list[str]) -> Iterator[list[str]]:
    """Yields the dotted names that a statement imports, split; relative names are resolved."""
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = origin(node, package)
        for alias in node.names:  # `from stower import engine` is an import of engine
            is_package = module == ["stower"] and alias.name in LAYERS
            is_package |= (*module, alias.name) == CHANCE
            yield [*module, alias.name] if is_package else module


def complaints(node: ast.AST, package: list[str], layer: str) -> Iterator[str]:
    """Yields the layer rules that one node of the syntax tree of a module breaks."""
    for top, *rest in imports(node, package):
        target = rest[0] if rest else "__init__"
        if top == "stower" and target not in LAYERS[layer]:
            yield f"{layer} must not import {target} (layers, {RULE})"
        elif top in BANNED_EVERYWHERE:
            yield f"{layer} must not import {top} (banned everywhere, {RULE})"
        elif top in BANNED.split() and layer in PURE:
            yield f"{layer} must not import {top} (pure layers, {RULE})"
        elif (top, target) == CHANCE and layer in PURE:
            yield f"{layer} must not import {'.'.join(CHANCE)} (pure layers, {RULE})"
    used = ""
    if isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random"):
        used = ast.unparse(node)
    elif isinstance(node, ast.Attribute) and node.attr in BANNED_CLOCKS:
        owner = ast.unparse(node.value).rpartition(".")[2]
        used = f"{owner}.{node.attr}" if owner in ("date", "datetime") else ""
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        used = f"{node.func.id}()" if node.func.id in BANNED_CALLS else ""
    if used and layer in PURE:
        yield f"{layer} must not use {used} (pure layers, {RULE})"


def check(file: Source) -> Iterator[tuple[int, str]]:
    """Yields line and complaint of every rule that one file breaks."""
    if (count := file.text.count("\n")) > LINES_MAX:
        yield LINES_MAX + 1, f"the file has {count} lines, want at most {LINES_MAX}"
    layer = file.parts[1]
    if layer not in LAYERS:
        yield 1, f"unknown package {layer}: want a row in a table of {Path(__file__).name}"
        return
    for node in ast.walk(file.tree):
        for complaint in complaints(node, file.package, layer):
            yield getattr(node, "lineno", 1), complaint
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1  # without decorators
            if count > FUNCTION_LINES_MAX:
                what = f"the function {node.name} has {count} lines"
                yield node.lineno, f"{what}, want at most {FUNCTION_LINES_MAX}"


# Circles


def imported_names(file: Source) -> dict[str, int]:
    """Returns every name that a file imports and that may be a module, each with its first line.

    `from package import module` imports both: it reads an attribute of the package.
    """
    found: dict[str, int] = {}
    for node in ast.walk(file.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(origin(node, file.package))
            names = [start, *(f"{start}.{alias.name}" for alias in node.names)]
        for name in names:
            line = getattr(node, "lineno", 1)
            found[name] = min(line, found.get(name, line))
    return found


def circles(graph: Mapping[str, Mapping[str, int]]) -> Iterator[list[str]]:
    """Yields the modules of each circle, sorted.

    A circle is a strongly connected component of two or more modules, found as Tarjan does
    (Depth-first search and linear graph algorithms, 1972).
    """
    order: dict[str, int] = {}  # of the first visit
    lowest: dict[str, int] = {}  # the earliest module on the stack that can be reached
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                yield from visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            start = stack.index(module)
            component = sorted(stack[start:])
            del stack[start:]
            if len(component) > 1:
                yield component

    for module in graph:
        if module not in order:
            yield from visit(module)


def check_circles(
    paths: Mapping[str, Path], named: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[Path, int, str]]:
    """Yields file, line and complaint of each circle, at an import of its first module.

    `paths` and `named`: of each module, its file and its `imported_names`.
    """
    graph = {
        module: {name: line for name, line in names.items() if name in paths and name != module}
        for module, names in named.items()
    }
    for circle in circles(graph):
        first = graph[circle[0]]
        line = min(first[other] for other in circle if other in first)
        yield paths[circle[0]], line, f"import circle: {', '.join(circle)} ({RULE})"


def check_tree(source: Path) -> list[str]:
    """Returns every broken rule of the package `stower` in this folder, as `file:line: what`."""
    found: set[tuple[Path, int, str]] = set()
    paths: dict[str, Path] = {}
    named: dict[str, dict[str, int]] = {}
    for path in sorted((source / "stower").rglob("*.py")):
        file = read(path, source)
        found.update((path, line, what) for line, what in check(file))
        paths[file.module] = path
        named[file.module] = imported_names(file)
    found.update(check_circles(paths, named))
    if not paths:
        return [f"{source / 'stower'}: no Python files"]
    return [f"{path}:{line}: {what}" for path, line, what in sorted(found)]


def main() -> None:
    """Prints every broken rule and exits with code 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "source", nargs="?", type=Path, default=Path("src"), help="folder to check (default: src)"
    )
    sys.exit("\n".join(check_tree(parser.parse_args().source)) or 0)


if __name__ == "__main__":
    main()
