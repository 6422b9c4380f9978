"""Pictures of the dashboard for the documents: `make screenshots`. The scenario is examples/campus,
in which the scheduler decides ties by its default seed, 0."""

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.browser.chromium import browser
from tests.contract.campus import campus

SIZE: Final = {"width": 1200, "height": 720}
# Name, colours, place, and what is there when it is whole.
PICTURES: Final = (
    ("cluster", "light", "#/cluster", "canvas.map[aria-label^='23 nodes']"),
    ("cluster-dark", "dark", "#/cluster", "canvas.map[aria-label^='23 nodes']"),
    ("pod", "light", "#/pod/default/huge", "#changes li"),
    ("groups", "light", "#/groups", "ul.tree li:has-text('wide-ring')"),
    ("negotiations", "light", "#/negotiations", "svg.ladder text:has-text('fabric')"),
    ("warm", "light", "#/warm", ".slots i.k-user"),
    ("what-if", "light", "#/what-if/remove%3Duser-1", "#difference td"),
)


def main(folder: Path) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="stower-pictures-") as made,
        campus(Path(made) / "state") as (_, link),
        browser() as chrome,
    ):
        for name, scheme, where, whole in PICTURES:
            page = chrome.new_context(viewport=SIZE, color_scheme=scheme).new_page()
            page.goto(link)
            page.wait_for_selector("text=live, leader")
            page.evaluate(f"location.hash = '{where}'")
            page.wait_for_selector(whole)
            page.wait_for_timeout(4_500)  # two samples of the rates
            page.screenshot(path=str(folder / f"{name}.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
