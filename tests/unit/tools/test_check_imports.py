"""tools/check_imports.py: layers are a table, pure layers touch no outside world, modules form no
circles, and files and functions are short."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_imports import check_tree

ROOT = Path(__file__).parents[3]
LAYERS = "(layers, see ARCHITECTURE.md)"
PURE = "(pure layers, see ARCHITECTURE.md)"
RULE = "(see ARCHITECTURE.md)"
CIRCLE = "import circle: "
GOOD = {
    "__init__.py": "",
    "model/__init__.py": "from stower import __version__",
    "model/quantity.py": "import sys\nfrom stower.model import errors",
    "state/x.py": "from ..model import quantity\nfrom . import journal",
    "framework/x.py": "import numpy\nfrom stower.state.x import y\nfrom stower.model import z",
    "devices/negotiation/x.py": "from ...cel import parse\nfrom stower.devices import inventory",
    "plugins/__init__.py": "from stower.plugins import node_name\nimport stower.devices.inventory",
    "engine/x.py": "from datetime import datetime\ndatetime.fromtimestamp(0)\nclock.now()",
    "assembly.py": "from stower import engine, plugins\nfrom . import model",
    "controllers/x.py": "from stower.api import patches\nstream.open()",
    "sim/x.py": "import random, time\nfrom stower.api import watch\nfrom stower import assembly",
    "live/x.py": "import asyncio, logging\nfrom stower import driver, metrics\nopen('f')",
    "bench/x.py": "import time\nfrom stower.sim import world\nfrom stower.live import client",
    "dashboard/x.py": "from stower.bench import run\nfrom stower.sim import world",
    "cli/verbs/x.py": "from stower.dashboard import app\nfrom stower.bench import run\nprint()",
    "driver/x.py": "from stower.devices import negotiation\nfrom stower.framework import events",
}
UP = ["state", "framework", "plugins", "engine", "assembly", "controllers", "sim", "cli"]
SIBLINGS = [
    ("devices", "groups"), ("groups", "vms"), ("warm", "devices"), ("plugins", "engine"),
    ("engine", "plugins"), ("assembly", "controllers"), ("controllers", "assembly"),
    ("controllers", "engine"),
    ("live", "sim"), ("sim", "apiserver"), ("record", "live"), ("metrics", "record"),
    ("state", "api"), ("api", "state"), ("groups", "cel"), ("live", "api"), ("sim", "bench"),
    ("bench", "cli"), ("bench", "dashboard"), ("dashboard", "cli"), ("driver", "live"),
]  # fmt: skip
FORMS = [
    "import stower.engine.engine as s",
    "import sys, stower.engine",
    "from stower import engine",
    "from stower.engine import step",
    "from stower.engine.engine import *",
    "from .. import engine",
    "from ..engine.step import Engine",
    "def f() -> None: import stower.engine.engine",
    "if TYPE_CHECKING:\n    from stower.engine import step",
]
BANNED = [
    "asyncio", "concurrent.futures", "http.client", "importlib.metadata", "io", "logging",
    "multiprocessing", "os.path", "pathlib", "random", "secrets", "selectors", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "threading", "time", "urllib.parse", "uuid",
]  # fmt: skip
USES = {
    "open('f')": "open()",
    "print(1)": "print()",
    "eval('1')": "eval()",
    "exec('1')": "exec()",
    "__import__('time')": "__import__()",
    "datetime.now(UTC)": "datetime.now",
    "datetime.datetime.utcnow()": "datetime.utcnow",
    "datetime.date.today()": "date.today",
    "field(default_factory=datetime.now)": "datetime.now",
    "np.random.rand()": "np.random",
}
CIRCULAR = [
    "import stower.state.a",
    "from stower.state import a",
    "from stower.state.a import x",
    "from . import a",
    "from .a import x",
    "def f() -> None:\n    from stower.state import a",
    "if TYPE_CHECKING:\n    from stower.state.a import x",
]


def write(folder: Path, files: dict[str, str]) -> None:
    """Write these files below src/stower."""
    for name, text in files.items():
        path = folder / "src/stower" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def broken(folder: Path, files: dict[str, str]) -> list[str]:
    """Return the lines about a tree with these files, with paths from the folder."""
    write(folder, files)
    with contextlib.chdir(folder):
        return check_tree(Path("src"))


def function(kind: str, lines: int) -> str:
    """Return a function f of so many lines."""
    return "\n".join([f"{kind} f() -> None:", *["    x = 0"] * (lines - 1)])


def test_tree_that_keeps_the_rules_is_accepted_in_silence(tmp_path: Path) -> None:
    """Every layer may import what stands below it, and shells may touch the outside world."""
    assert [] == broken(tmp_path, GOOD)


@pytest.mark.parametrize("layer", UP)
def test_model_imports_no_layer_above_it(tmp_path: Path, layer: str) -> None:
    """The lowest layer imports nothing of ours."""
    files = {**GOOD, "model/bad.py": f'"""A module."""\nfrom stower.{layer} import x\n'}
    expected = f"src/stower/model/bad.py:2: model must not import {layer} {LAYERS}"
    assert [expected] == broken(tmp_path, files)


@pytest.mark.parametrize(("layer", "other"), SIBLINGS)
def test_import_outside_the_row_of_a_layer_is_an_error(
    tmp_path: Path, layer: str, other: str
) -> None:
    """Siblings, shells and layers beside each other stay apart."""
    name = "assembly.py" if layer == "assembly" else f"{layer}/bad.py"
    expected = f"src/stower/{name}:1: {layer} must not import {other} {LAYERS}"
    assert [expected] == broken(tmp_path, {name: f"from stower.{other} import x"})


@pytest.mark.parametrize("text", FORMS)
def test_every_form_of_import_is_seen(tmp_path: Path, text: str) -> None:
    """Relative imports, imports in functions and imports for types count as any other."""
    line = text.count("\n") + 1
    expected = f"src/stower/state/x.py:{line}: state must not import engine {LAYERS}"
    assert [expected] == broken(tmp_path, {"state/x.py": text})


@pytest.mark.parametrize("module", BANNED)
def test_pure_layer_imports_nothing_of_the_outside_world(tmp_path: Path, module: str) -> None:
    """Both import statements are seen, each reported once; shells may import the same."""
    text = f"import {module}\nfrom {module} import a, b"
    top = module.partition(".")[0]
    expected = [
        f"src/stower/controllers/x.py:{n}: controllers must not import {top} {PURE}" for n in (1, 2)
    ]
    assert expected == broken(tmp_path, {"controllers/x.py": text, "sim/x.py": text})


@pytest.mark.parametrize("text", ["import numpy.random", "from numpy import random"])
def test_pure_layer_draws_no_numbers(tmp_path: Path, text: str) -> None:
    expected = f"src/stower/state/x.py:1: state must not import numpy.random {PURE}"
    assert [expected] == broken(tmp_path, {"state/x.py": text, "sim/x.py": text})


@pytest.mark.parametrize("text", USES)
def test_pure_layer_uses_no_clock_file_or_output(tmp_path: Path, text: str) -> None:
    """Calls are seen wherever they stand, a clock also where it is only handed on."""
    expected = f"src/stower/engine/x.py:2: engine must not use {USES[text]} {PURE}"
    files = {"engine/x.py": f"def f() -> None:\n    {text}", "sim/x.py": text}
    assert [expected] == broken(tmp_path, files)


def test_pickle_is_banned_in_shells_too(tmp_path: Path) -> None:
    """Loading a pickle runs code, whoever does it."""
    rule = "must not import pickle (banned everywhere, see ARCHITECTURE.md)"
    expected = [f"src/stower/live/x.py:1: live {rule}", f"src/stower/state/x.py:1: state {rule}"]
    files = {"live/x.py": "import pickle", "state/x.py": "from pickle import loads"}
    assert expected == broken(tmp_path, files)


@pytest.mark.parametrize("name", ["surprise.py", "surprise/x.py"])
def test_unknown_package_is_told_where_the_table_is(tmp_path: Path, name: str) -> None:
    """A new package or top-level module needs a row before it may exist."""
    expected = (
        f"src/stower/{name}:1: unknown package surprise: want a row in a table of check_imports.py"
    )
    assert [expected] == broken(tmp_path, {name: ""})


def test_long_file_is_an_error_in_every_layer(tmp_path: Path) -> None:
    """600 lines pass and 601 do not."""
    files = {"state/x.py": "\n" * 600, "cli/x.py": "\n" * 601}
    expected = "src/stower/cli/x.py:601: the file has 601 lines, want at most 600"
    assert [expected] == broken(tmp_path, files)


@pytest.mark.parametrize("text", CIRCULAR)
def test_two_modules_that_import_each_other_are_a_circle(tmp_path: Path, text: str) -> None:
    """Relative imports, imports in functions and imports for types count as any other."""
    files = {"state/a.py": "import numpy\nfrom stower.state.b import y", "state/b.py": text}
    expected = f"src/stower/state/a.py:2: {CIRCLE}stower.state.a, stower.state.b {RULE}"
    assert [expected] == broken(tmp_path, files)


def test_circle_is_printed_once_with_all_its_modules(tmp_path: Path) -> None:
    """Modules that import a circle, or that a circle imports, are no part of it."""
    files = {
        "state/above.py": "from stower.state import c",
        "state/below.py": "",
        "state/c.py": "from stower.state import below, d",
        "state/d.py": "from stower.state import e",
        "state/e.py": "from stower.state import c, d",
    }
    modules = "stower.state.c, stower.state.d, stower.state.e"
    expected = f"src/stower/state/c.py:1: {CIRCLE}{modules} {RULE}"
    assert [expected] == broken(tmp_path, files)


def test_each_of_two_circles_is_printed(tmp_path: Path) -> None:
    """An import from one circle to the other does not make them one."""
    files = {
        "model/a.py": "from stower.model.b import x",
        "model/b.py": "from stower.model.a import x",
        "state/c.py": "from stower.model.a import x\nfrom stower.state.d import x",
        "state/d.py": "from stower.state.c import x",
    }
    expected = [
        f"src/stower/model/a.py:1: {CIRCLE}stower.model.a, stower.model.b {RULE}",
        f"src/stower/state/c.py:2: {CIRCLE}stower.state.c, stower.state.d {RULE}",
    ]
    assert expected == broken(tmp_path, files)


def test_module_that_imports_from_a_package_that_imports_it_is_a_circle(tmp_path: Path) -> None:
    """`from package import module` reads an attribute of the package; the module's own name does
    not."""
    table = "from stower.plugins.fit import Fit"
    files = {"plugins/__init__.py": table, "plugins/kernels.py": ""}
    good = {**files, "plugins/fit.py": "from stower.plugins.kernels import score"}
    assert [] == broken(tmp_path, good)
    bad = {**files, "plugins/fit.py": "from stower.plugins import kernels"}
    modules = "stower.plugins, stower.plugins.fit"
    expected = f"src/stower/plugins/__init__.py:1: {CIRCLE}{modules} {RULE}"
    assert [expected] == broken(tmp_path, bad)


def test_package_that_imports_its_own_modules_is_no_circle(tmp_path: Path) -> None:
    files = {"state/__init__.py": "from stower.state import a\nfrom . import a", "state/a.py": ""}
    assert [] == broken(tmp_path, files)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_long_function_is_an_error_in_every_layer(tmp_path: Path, kind: str) -> None:
    """70 lines pass and 71 do not, from `def` to the last line; decorators are not counted."""
    files = {"state/x.py": function(kind, 70), "cli/x.py": f"\n@cache\n{function(kind, 71)}"}
    expected = "src/stower/cli/x.py:3: the function f has 71 lines, want at most 70"
    assert [expected] == broken(tmp_path, files)


def test_nested_function_counts_on_its_own_and_within_its_parent(tmp_path: Path) -> None:
    """A method counts as any function; the lines of its class do not matter."""
    nested = "\n".join(f"    {line}" for line in function("def", 71).splitlines())
    files = {
        "state/x.py": f"class A:\n{nested}\n{nested}",
        "state/y.py": f"def outer() -> None:\n{nested}",
    }
    expected = [
        "src/stower/state/x.py:2: the function f has 71 lines, want at most 70",
        "src/stower/state/x.py:73: the function f has 71 lines, want at most 70",
        "src/stower/state/y.py:1: the function outer has 72 lines, want at most 70",
        "src/stower/state/y.py:2: the function f has 71 lines, want at most 70",
    ]
    assert expected == broken(tmp_path, files)


def test_all_findings_come_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    """One run shows everything that is wrong."""
    files = {
        "state/x.py": "def f() -> None:\n    import time\nimport os",
        "model/x.py": "import stower.state",
    }
    expected = [
        f"src/stower/model/x.py:1: model must not import state {LAYERS}",
        f"src/stower/state/x.py:2: state must not import time {PURE}",
        f"src/stower/state/x.py:3: state must not import os {PURE}",
    ]
    assert expected == broken(tmp_path, files)


def test_place_without_python_files_is_an_error(tmp_path: Path) -> None:
    """A checker that looks at nothing must not say that all is well."""
    assert ["src/stower: no Python files"] == broken(tmp_path, {})


def test_command_prints_what_is_broken_and_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/check_imports.py")]
    write(tmp_path, {"model/x.py": "import time"})
    for source, expected in (
        ([], f"src/stower/model/x.py:1: model must not import time {PURE}\n"),
        (["nowhere"], "nowhere/stower: no Python files\n"),
    ):
        ran = subprocess.run(
            [*command, *source], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (1, "", expected) == (ran.returncode, ran.stdout, ran.stderr)
    good = subprocess.run([*command, str(ROOT / "src")], capture_output=True, check=False)
    assert (0, b"", b"") == (good.returncode, good.stdout, good.stderr)
