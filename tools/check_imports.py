"""Check the layers of src/stower: who imports whom, and what a pure layer may not touch.

The rule is the tables below; a new package is one row in one of them. What is pure holds no
clock, thread, file, socket, log or unseeded chance: those belong to the shells, so that the same
events give the same writes everywhere. Exit code 1: something breaks a rule, or nothing is there.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

RULE: Final = "see ARCHITECTURE.md"
LINES_MAX: Final = 600  # arbitrary: a file of one purpose has stayed well below it

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
    "sim": CORE + " api",
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


def imports(node: ast.AST, package: list[str]) -> Iterator[list[str]]:
    """Yield the dotted names that a statement imports, split; relative ones are resolved."""
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = package[: max(0, len(package) + 1 - node.level)] if node.level else []
        module = [*start, *(node.module or "").split(".")] if node.module else start or [""]
        for alias in node.names:  # `from stower import engine` is an import of engine
            is_package = module == ["stower"] and alias.name in LAYERS
            is_package |= (*module, alias.name) == CHANCE
            yield [*module, alias.name] if is_package else module


def complaints(node: ast.AST, package: list[str], layer: str) -> Iterator[str]:
    """Yield what is wrong with one node of the syntax tree of a module in the layer."""
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


def check(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Yield line and complaint of everything in one file that breaks a rule."""
    text = path.read_text(encoding="utf-8")
    if (count := text.count("\n")) > LINES_MAX:
        yield LINES_MAX + 1, f"the file has {count} lines, want at most {LINES_MAX}"
    _, layer, *_ = parts = path.relative_to(source).with_suffix("").parts
    if layer not in LAYERS:
        yield 1, f"unknown package {layer}: want a row in a table of {Path(__file__).name}"
        return
    for node in ast.walk(ast.parse(text, path)):
        for complaint in complaints(node, list(parts[:-1]), layer):
            yield getattr(node, "lineno", 1), complaint


def main() -> None:
    """Print what breaks a rule, by file and line, and exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", type=Path, default=Path("src"), help="(src)")
    source: Path = parser.parse_args().source
    paths = sorted((source / "stower").rglob("*.py"))
    found = [f"{p}:{line}: {what}" for p in paths for line, what in sorted({*check(p, source)})]
    if not paths:
        found = [f"{source / 'stower'}: no Python files"]
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
