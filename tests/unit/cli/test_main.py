"""What all verbs have in common: help, errors, codes."""

import importlib
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from stower.cli.main import VERBS, app

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
        (("up", "--nodes", "x"), "--nodes"),
        (("groups", "--output", "xml"), "'--output' / '-o': 'xml' is not one of 'table'"),
        (("config",), "Missing argument 'action'. Choose from: check, defaults, convert\n"),
        (("up", "--zones", "a,,b"), '--zones: got "a,,b", want names'),
        (("sweep", "generate:foo=1"), 'generate: got "foo=1", want'),
        (("top", "--port", "1", "--token-file", "/no"), "--token-file /no: No such file"),
        (("get", "devices"), 'got "devices", want pending, or stower devices'),
        (("groups", "-"), "- is stdin: want stower groups all -"),
        (("groups", "all", "x.yaml", "--state", "lab"), "--state: want no INPUT"),
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
