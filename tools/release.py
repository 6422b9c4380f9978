"""Make a release: `release.py VERSION`. Moves the notes in changes/ into CHANGELOG.md, and sets the
version in all files that state it. Does not commit or tag. Versions: docs/production.md."""

import argparse
import datetime
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
# By file: what stands around the version.
PLACES: Final = {
    "pyproject.toml": (r'^(version = ")[^"]*(")',),
    "deploy/chart/stower/Chart.yaml": (r"^(version: ).*()", r"^(appVersion: ).*()"),
    "deploy/scheduler/kustomization.yaml": (r'^(  newTag: ")[^"]*(")',),
}
HEAD: Final = """# Changes

What is not yet released is in changes/, a file for each part. Versions: docs/production.md.
"""


def versions(root: Path = ROOT) -> dict[str, set[str]]:
    """Which versions each file names."""
    return {
        name: {
            match[0].removeprefix(match[1]).removesuffix(match[2])
            for pattern in patterns
            for match in re.finditer(pattern, (root / name).read_text(encoding="utf-8"), re.M)
        }
        for name, patterns in PLACES.items()
    }


def release(version: str, day: str, root: Path = ROOT) -> None:
    """Write all files. Raises ValueError where that is no version, or nothing has changed."""
    if not VERSION.fullmatch(version):
        raise ValueError(f'got "{version}", want a version such as 1.2.3 or 1.2.3rc1')
    parts = sorted((root / "changes").glob("*.md"))
    if not parts:
        raise ValueError("changes/ is empty: nothing to release")
    texts = [f"### {p.stem}\n\n{p.read_text(encoding='utf-8').strip()}\n" for p in parts]
    log = root / "CHANGELOG.md"
    before = log.read_text(encoding="utf-8").removeprefix(HEAD) if log.exists() else ""
    made = f"{HEAD}\n## {version} – {day}\n\n" + "\n".join(texts) + before
    log.write_text(made, encoding="utf-8")
    for name, patterns in PLACES.items():
        text = (root / name).read_text(encoding="utf-8")
        for pattern in patterns:
            text, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text, flags=re.M)
            if count != 1:
                raise ValueError(f"{name}: found {count} places for the version, want one")
        (root / name).write_text(text, encoding="utf-8")
    for path in parts:
        path.unlink()


def main() -> None:
    """Make a release of this checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="the new version, such as 1.2.3 or 1.2.3rc1")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        release(parser.parse_args().version, day)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
