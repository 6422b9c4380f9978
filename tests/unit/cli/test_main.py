"""What all verbs have in common: help, errors, codes."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stower.cli.main import VERBS, app

ENTRY = re.compile(r"^  (\S+) +((?:.*\n)(?: {4,}.*\n)*)", re.MULTILINE)
COMMAND = [sys.executable, "-m", "stower.cli.main"]


def ran(*arguments: str, **more: object) -> "subprocess.CompletedProcess[str]":
    command = [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def test_the_list_of_verbs_says_of_each_all_that_it_does() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert "..." not in said.replace("[ARGS]...", "")
    for verb in VERBS:
        assert f"\n  {verb} " in said


@pytest.mark.parametrize("verb", VERBS)
def test_help_lists_each_verb_with_the_first_line_of_its_own_help(verb: str) -> None:
    """The text in VERBS is a copy, so that help need not import the verb: the two are the same."""
    module = importlib.import_module(f"stower.cli.verbs.{verb.replace('-', '_')}")
    assert verb == module.NAME
    lines = (inspect.getdoc(module.run) or "").splitlines()
    assert lines[0] == VERBS[verb]
    assert lines[1:2] in ([], [""]), "the first line is a paragraph of its own"
    said = CliRunner().invoke(app, ["--help"]).stdout.partition("\nCommands:\n")[2]
    listed = {name: " ".join(text.split()) for name, text in re.findall(ENTRY, said)}
    assert lines[0] == listed[verb]
    own = CliRunner().invoke(app, [verb, "--help"]).stdout.split("\n\n")[1]
    assert " ".join(own.split()) == lines[0]


def test_every_file_of_a_verb_is_listed() -> None:
    folder = Path(importlib.import_module("stower.cli.verbs").__path__[0])
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - {"--init--"}
    assert files == set(VERBS)


HEAVY = ("numpy", "aiohttp", "kubernetes_asyncio")
LOOK = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
from stower.cli import main

def imported(*arguments, **environment):
    os.environ.update(environment)
    sys.argv = ["stower", *arguments]
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        try:
            main.main()
        except SystemExit:
            pass
    for name in environment:
        del os.environ[name]
    return text.getvalue(), sorted(sys.modules)

print(json.dumps([
    imported("--help"),
    imported("--version"),
    imported("nobody"),
    imported(_STOWER_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="stower wa"),
    imported("get", "--help"),
]))
"""


def test_what_lists_verbs_imports_none_of_them() -> None:
    """Help, version, an unknown verb and completion; a verb's own help imports that verb alone, and
    not what only its run needs."""
    ended = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    *listings, own = json.loads(ended.stdout)
    wanted = ("\n  what-if ", "stower ", "No such command 'nobody'", '"warm"')
    for (said, modules), text in zip(listings, wanted, strict=True):
        assert text in said
        assert [] == [name for name in modules if name in {*HEAVY, "yaml"} or ".verbs" in name]
    assert ["stower.cli.verbs.get"] == [name for name in own[1] if ".verbs." in name]
    assert [] == [name for name in own[1] if name in HEAVY]


def test_run_imports_nothing_of_verbs_that_read_clusters_from_files() -> None:
    """A scheduler that was killed is waited for: its imports were most of the time that it took."""
    look = "import sys, stower.cli.verbs.run; print(*sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    modules = ended.stdout.split()
    of_others = (
        "stower.sim.",
        "stower.bench.",
        "stower.dashboard.",
        "stower.cli.inputs",
        "ortools",
    )
    assert "stower.live.scheduler" in modules
    assert [] == [name for name in modules if name.startswith(of_others)]


@pytest.mark.parametrize("verb", VERBS)
def test_examples_can_be_copied(verb: str) -> None:
    """Each is on a line of its own, whole, however narrow the terminal is."""
    module = importlib.import_module(f"stower.cli.verbs.{verb.replace('-', '_')}")
    examples = [line for line in module.EPILOG.splitlines() if line.startswith("  ")]
    assert examples
    said = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "60"}).stdout
    assert [line for line in examples if line not in said.splitlines()] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "No such command 'nobody'"),
        (("explian",), "No such command 'explian'; did you mean explain?"),
        (("up", "--nodes", "x"), "--nodes"),
        (("groups", "--output", "xml"), "'--output' / '-o': 'xml' is not one of 'table'"),
        (("config",), "Missing argument 'action'. Choose from: check, defaults, convert\n"),
        (("up", "--zones", "a,,b"), "--zones: got 'a,,b', want names"),
        (("sweep", "generate:foo=1"), 'generate: got "foo=1", want'),
        (("top", "--port", "1", "--token-file", "/no"), "--token-file /no: No such file"),
        (("get", "devices"), "got 'devices', want pending (for devices: stower devices)"),
        (("groups", "-"), "- is stdin, not a name: want stower groups all -"),
        (("groups", "all", "x.yaml", "--state", "lab"), "--state cannot be combined with INPUT"),
    ],
)
def test_what_was_typed_wrong_is_told_in_one_way(arguments: tuple[str, ...], said: str) -> None:
    found = ran(*arguments)
    assert 2 == found.returncode
    assert found.stderr.startswith("stower: error: ")
    assert said in found.stderr


def test_a_reader_that_goes_away_ends_it_as_a_broken_pipe_does() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "generate", "--pods", "100"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert process.stderr is not None
        assert b"" == process.stderr.read()
        assert 141 == process.wait()


def test_nobody_reads_at_all() -> None:
    shell = f"{sys.executable} -m stower.cli.main config defaults >&-"
    assert 0 == subprocess.run(["bash", "-c", shell], check=False).returncode
