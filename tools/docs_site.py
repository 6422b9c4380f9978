"""Build the documents as a static site: `make site`, or this with the folder to write to.

Pages keep their paths in the repository, so that links work in both. The tool also writes
reference pages from the program: commands, configuration, kinds. Pages load nothing from other
sites. Every internal link is checked. Exit code 1: a link is broken.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
TAKEN: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE",
                "docs", "examples", "deploy")  # fmt: skip
FAULTS: Final = ("WARNING", "ERROR")
LEFT: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".pytest_cache")
NAVIGATION: Final = (
    ("Home", "README.md"), ("Ten minutes", "docs/tutorial.md"), ("Documents", "docs/README.md"),
    ("Commands", "reference/commands.md"), ("Configuration", "reference/configuration.md"),
    ("Kinds", "reference/kinds.md"), ("Architecture", "ARCHITECTURE.md"),
)  # fmt: skip


def commands() -> Iterator[str]:
    """What every verb's --help says."""
    from typer.testing import CliRunner

    from stower.cli.main import VERBS, app

    yield "# Commands\n\nWhat each says for `--help`, of this version.\n"
    for verb in VERBS:
        said = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "100"}).stdout
        yield f"## stower {verb}\n\n```text\n{said.rstrip()}\n```\n"


def configuration() -> Iterator[str]:
    """Plugins in the order in which they run, and all that is in force without a file."""
    from typer.testing import CliRunner

    from stower.cli.main import app
    from stower.framework.configuration import DEFAULT_PLUGINS
    from stower.framework.plugin import GATES
    from stower.plugins import PLUGINS

    yield (
        "# Configuration\n\nA KubeSchedulerConfiguration (`kubescheduler.config.k8s.io/v1`), as "
        "kube-scheduler reads it: `stower config check`, `defaults`, `convert`.\n\n## Plugins\n\n"
        "| plugin | weight by default | what it is for |\n|---|---|---|\n"
    )
    weights = dict(DEFAULT_PLUGINS)
    for plugin in sorted(PLUGINS, key=lambda one: one.name):
        module = sys.modules[plugin.__module__]
        first = (module.__doc__ or plugin.__doc__ or "").strip().split("\n\n")[0]
        text = " ".join(first.split()).replace("|", "\\|")
        weight = weights.get(plugin.name)
        shown = "off" if weight is None else str(weight) if weight else "-"
        yield f"| `{plugin.name}` | {shown} | {text} |\n"
    gates = ", ".join(f"`{name}`" for name in GATES)
    yield f"\n## Feature gates\n\n`--feature-gates` knows {gates}; others have no effect.\n"
    said = CliRunner().invoke(app, ["config", "defaults"]).stdout
    yield f"\n## In force without a file\n\n```yaml\n{said.rstrip()}\n```\n"


def kinds() -> Iterator[str]:
    """The kinds of stower.dev, field by field, from their definitions."""
    yield "# Kinds\n\nThose of `stower.dev`, from the definitions in `deploy/`.\n"
    for path in sorted((ROOT / "deploy").rglob("*.yaml")):
        if "templates" in path.parts:
            continue
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield from _kind(document, path)


def _kind(document: dict[str, Any], path: Path) -> Iterator[str]:
    spec = document["spec"]
    if not spec["group"].endswith("stower.dev"):
        return
    yield f"\n## {spec['names']['kind']}\n\nDefined in `{path.relative_to(ROOT)}`.\n\n"
    yield "| field | type | meaning |\n|---|---|---|\n"
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for name in ("spec", "status"):
            yield from _fields(schema.get("properties", {}).get(name, {}), name)
        for name, field in schema.get("properties", {}).items():
            if name not in ("spec", "status", "metadata", "apiVersion", "kind"):
                yield from _fields(field, name)


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    text = " ".join(str(schema.get("description", "")).split()).replace("|", "\\|")
    yield f"| `{path}` | {schema.get('type', 'any')} | {text} |\n"
    inner = schema.get("items", schema) if schema.get("type") == "array" else schema
    path = f"{path}[]" if schema.get("type") == "array" else path
    for name, field in (inner.get("properties") or {}).items():
        yield from _fields(field, f"{path}.{name}")


def stage(folder: Path) -> None:
    """All pages, at the places that they have in the repository."""
    for name in TAKEN:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT)
        elif source.exists():
            shutil.copy(source, folder / name)
    (folder / "reference").mkdir()
    for made in (commands, configuration, kinds):
        (folder / "reference" / f"{made.__name__}.md").write_text("".join(made()))


def build(out: Path) -> int:
    """Build it; the exit code."""
    with tempfile.TemporaryDirectory(prefix="stower-site-") as made:
        pages = Path(made) / "pages"
        pages.mkdir()
        stage(pages)
        settings = {
            "site_name": "Stower", "docs_dir": str(pages), "site_dir": str(out.resolve()),
            "theme": {"name": "mkdocs", "highlightjs": False, "color_mode": "auto"},
            "nav": [{title: page} for title, page in NAVIGATION], "use_directory_urls": False,
            "validation": {
                "nav": {"omitted_files": "info"},
                "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn",
                          "unrecognized_links": "warn"},
            },
        }  # fmt: skip
        config = Path(made) / "mkdocs.yml"
        config.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:  # the rest is of no interest
            lines = [line for line in ran.stderr.splitlines() if line.startswith(FAULTS)]
            sys.stderr.write("\n".join(lines) + "\n")
        return ran.returncode


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("want the folder to write to: python tools/docs_site.py build/site")
    sys.exit(build(Path(sys.argv[1])))
