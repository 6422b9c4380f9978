"""The documents as a site: all links within hold, and what is broken is noticed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(out: Path, more: str = "") -> "subprocess.CompletedProcess[str]":
    """The site, with one more page."""
    code = (
        "import sys; from pathlib import Path; from tools import docs_site\n"
        "stage = docs_site.stage\n"
        "def more(folder):\n"
        "    stage(folder)\n"
        f"    (folder / 'docs' / 'more.md').write_text({more!r})\n"
        "docs_site.stage = more\n"
        f"sys.exit(docs_site.build(Path({str(out)!r})))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_all_links_hold_and_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    ran = built(tmp_path / "site", "# More\n\n[up](up.md#a-cluster-file)\n")
    assert 0 == ran.returncode, ran.stderr
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text()
    assert "stower what-if" in commands
    assert "WarmPool" in (tmp_path / "site" / "reference" / "kinds.html").read_text()
    assert "ImageLocality" in (tmp_path / "site" / "reference" / "configuration.html").read_text()
    for page in (tmp_path / "site").rglob("*.html"):
        for what in ('src="http', 'href="http'):
            for loaded in page.read_text().split(what)[1:]:
                assert 'rel="stylesheet"' not in loaded[:200], page
                assert what.startswith("href"), f"{page} loads http{loaded[:60]}"


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    links = ["none.md", "up.md#no-such-part", "../examples/none.yaml"]
    ran = built(tmp_path / "site", "# More\n" + "".join(f"\n[broken]({link})\n" for link in links))
    assert 0 != ran.returncode
    faults = ran.stderr.splitlines()
    for link in links:
        assert any(link.partition("#")[0] in fault for fault in faults), link
    assert len(links) == len(faults)
