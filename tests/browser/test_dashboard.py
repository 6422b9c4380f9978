"""The dashboard in a real browser: what it shows, live, by keyboard, and what it lets nobody do."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.browser.chromium import browser
from tests.contract.campus import PLACED, campus
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import PODS, add_node, add_nodes, add_pods, bound, condition_false
from tests.contract.test_status_reports import url_of

pytestmark = pytest.mark.more
NARROW, WIDE = {"width": 360, "height": 640}, {"width": 1280, "height": 800}
INJECTED = '<img src=x onerror="document.title=1">'
# First paint and interaction of 5,000 nodes with 50,000 pods, with room for a busy machine.
PAINT_MS, INTERACTION_MS = 2_000, 100
SLACK = 2


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@contextlib.contextmanager
def scheduling(client: Client, folder: Path) -> Iterator[str]:
    """A scheduler; the address of its dashboard, which lets in."""
    path = folder / "token"
    command = Command("run", "--kubeconfig", str(client.kubeconfig), "--no-leader-elect",
                      "--port", "0", "--token-file", str(path))  # fmt: skip
    try:
        yield f"{url_of(command.output)}/dashboard/#token={path.read_text().strip()}"
    finally:
        command.kill()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[Client, str]]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        add_nodes(client, 6)
        with scheduling(client, tmp_path) as url:
            yield client, url


@contextlib.contextmanager
def page_of(chrome: Any, url: str, **options: Any) -> Iterator[Any]:
    """The page, which must not complain of anything."""
    context = chrome.new_context(**options)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(url)
    try:
        yield page
        assert [] == faults
    finally:
        context.close()


@pytest.mark.behaviour("X7")
def test_what_happens_is_seen_while_it_happens(chrome: Any, lab: tuple[Client, str]) -> None:
    client, url = lab
    with page_of(chrome, url, viewport=WIDE) as page:
        page.wait_for_selector("text=live, leader")
        assert "token" not in page.url
        add_pods(client, ["a", "b"])
        until(client, PODS, lambda o: len(bound(o)) == 2)
        page.wait_for_selector('.card:has-text("pods placed") b:text-is("2")')
        add_pods(client, ["huge"], "900")
        until(client, PODS, lambda o: condition_false(o["huge"]))
        page.click("nav >> text=Queue")
        page.click("text=default/huge")
        page.wait_for_selector("text=rejected by NodeResourcesFit")
        page.wait_for_selector("td:has-text('Insufficient cpu')")
        page.wait_for_selector("#changes li:has-text('cpu')")
        page.wait_for_selector("#timeline li:has-text('created')")
        add_node(client, "big", "1000")
        page.wait_for_selector("#where:has-text('On big')")
        page.click("nav >> text=Decisions")
        page.click("tr:has-text('default/a') >> a >> nth=0")
        page.wait_for_selector("#where:has-text('On n')")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The campus: the link to its dashboard, and its recording."""
    folder = tmp_path_factory.mktemp("campus")
    with campus(folder / "state", "--record", str(folder / "recording")) as (_, link):
        yield link, folder / "recording"


# Each page by its key, and what it shows of the campus.
PAGES = {
    "1": "canvas.map[aria-label^='23 nodes']",
    "2": "a:text-is('default/huge')",
    "3": "h2:has-text('Last decisions')",
    "4": "ul.tree li:has-text('wide-ring'):has-text('impossible')",
    "5": "tr:has-text('gpu-1'):has-text('of 40Gi memory') .meter i",
    "6": "svg.ladder text:has-text('fabric.example.com')",
    "7": "tr:has-text('default/pg-1') .meter i",
    "8": ".slots i.k-user",
    "9": "svg.chart[aria-label^='Pending']",
    "0": "button:text-is('Show the difference')",
}


@pytest.mark.behaviour("X7")
def test_each_page_shows_its_part_at_a_key(chrome: Any, everything: tuple[str, Path]) -> None:
    for scheme, size in (("light", WIDE), ("dark", NARROW)):
        options = {"viewport": size, "color_scheme": scheme}
        with page_of(chrome, everything[0], **options) as page:
            page.wait_for_selector("text=live, leader")
            for key, shown in PAGES.items():
                page.keyboard.press(key)
                page.wait_for_selector(shown)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= size["width"], f"page {key} is wider than its screen"


@pytest.mark.behaviour("X7")
def test_what_would_change_is_shown_before_anything_does(
    chrome: Any, everything: tuple[str, Path]
) -> None:
    with page_of(chrome, everything[0], viewport=WIDE) as page:
        page.wait_for_selector("text=live, leader")
        page.evaluate("location.hash = '#/node/user-1'")
        page.click("text=What if it were drained?")
        row = "#difference tr:has(td:text-is('nodes'))"
        page.wait_for_selector(f"{row} td:nth-child(3):has-text('22')")
        page.fill("input[name=remove]", "")
        page.fill("input[name=add]", "2")
        page.fill("input[name=like]", "gpu-1")
        page.select_option("select[name=plugin]", "NodeResourcesFit")
        page.fill("input[name=weight]", "1000")
        page.check("input[name=anew]")
        page.click("button:text-is('Show the difference')")
        page.wait_for_selector(f"{row} td:nth-child(3):has-text('25')")
        page.wait_for_selector("#difference h2:has-text('Moved')")
        page.keyboard.press("Tab")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("1")
        page.wait_for_selector(PAGES["1"])


@pytest.mark.behaviour("X7")
def test_a_recording_is_looked_at_at_any_moment(
    chrome: Any, everything: tuple[str, Path], tmp_path: Path
) -> None:
    copied = tmp_path / "recording"
    copied.write_bytes(everything[1].read_bytes())
    command = Command("replay", str(copied), "--port", "0")
    try:
        link = command.output.partition("Dashboard: ")[2].split()[0]
        with page_of(chrome, link, viewport=WIDE) as page:
            placed = '.card:has-text("pods placed") b:text-is("{}")'
            page.wait_for_selector(placed.format(PLACED))
            page.focus("#moment")
            page.keyboard.press("Home")
            # The scheduler begins while nodes are still created: how many it saw first is chance.
            page.wait_for_selector(placed.format(0))
            page.keyboard.press("End")
            page.wait_for_selector(placed.format(PLACED))
            page.wait_for_selector(PAGES["1"])
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press("4")
            page.wait_for_selector(PAGES["4"])
            page.focus("#moment")
            page.keyboard.press("Home")
            page.wait_for_selector("text=There are no pod groups.")
            page.click("button:text-is('Play')")
            page.wait_for_selector(PAGES["4"])
    finally:
        command.kill()


def test_it_is_used_by_keyboard_alone(chrome: Any, lab: tuple[Client, str]) -> None:
    _, url = lab
    with page_of(chrome, url, viewport=WIDE) as page:
        page.wait_for_selector("text=live, leader")
        page.wait_for_selector("canvas.map[aria-label^='6 nodes']")
        page.keyboard.press("2")
        page.wait_for_selector("h2:has-text('Pending pods')")
        page.keyboard.press("1")
        page.wait_for_selector("canvas.map")
        for _ in range(20):
            if page.evaluate("document.activeElement.tagName") == "CANVAS":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tile:has-text('n1')")
        page.keyboard.press("Enter")
        page.wait_for_selector("h2:has-text('Node n1')")
        page.keyboard.press("Escape")
        page.wait_for_selector("canvas.map")
        page.keyboard.press("/")
        page.keyboard.type("n3")
        page.keyboard.press("Enter")
        page.wait_for_selector("h2:has-text('Node n3')")


def test_what_objects_say_is_text_whatever_it_looks_like(
    chrome: Any, lab: tuple[Client, str]
) -> None:
    client, url = lab
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": INJECTED}}
    container = {"name": "c", "image": INJECTED}
    pod = {"metadata": {"name": "evil"}, "spec": {"containers": [container], "volumes": [volume]}}
    status, answer = client.call("POST", PODS, pod)
    assert 201 == status, answer
    until(client, PODS, lambda o: condition_false(o["evil"]))
    with page_of(chrome, url, viewport=WIDE) as page:
        page.wait_for_selector("text=live, leader")
        page.click("nav >> text=Decisions")
        page.wait_for_selector("td:has-text('<img src=x')")
        page.evaluate("location.hash = '#/pod/default/evil'")
        page.wait_for_selector("li:has-text('<img src=x')")
        page.evaluate(f"location.hash = '#/node/' + encodeURIComponent({INJECTED!r})")
        page.wait_for_selector("h2:has-text('<img src=x')")
        assert 0 == page.locator("img").count()
        assert "Stower" == page.title()


def test_who_has_no_token_is_asked_and_sees_nothing(chrome: Any, lab: tuple[Client, str]) -> None:
    client, url = lab
    address, _, token = url.partition("#token=")
    context = chrome.new_context(viewport=NARROW, color_scheme="dark")
    try:
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("text=Enter the token")
        assert "n1" not in page.content()
        page.fill("input[type=password]", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=live, leader")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW["width"], "nothing is wider than the narrowest screen"
        assert "rgb(21, 23, 26)" == page.evaluate("getComputedStyle(document.body).backgroundColor")
    finally:
        context.close()
    assert client


def test_five_thousand_nodes_are_seen_at_once_and_answer_at_once(
    chrome: Any, tmp_path: Path
) -> None:
    """With 50,000 pods on them."""
    with in_thread(Options(tmp_path / "state", memory=True)) as (server, client):
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        for number in range(5_000):
            labels = {"topology.kubernetes.io/zone": f"zone-{number % 3}"}
            node = {"metadata": {"name": f"n{number}", "labels": labels},
                    "status": {"allocatable": amounts}}  # fmt: skip
            assert 201 == client.call("POST", "/api/v1/nodes", node)[0]
        asks = {"requests": {"cpu": "100m", "memory": "128Mi"}}
        for number in range(50_000):
            spec = {"containers": [{"name": "c", "image": "i", "resources": asks}],
                    "nodeName": f"n{number % 5_000}"}  # fmt: skip
            pod = {"metadata": {"name": f"p{number}"}, "spec": spec}
            assert 201 == client.call("POST", PODS, pod)[0]
        assert server
        with scheduling(client, tmp_path) as url, page_of(chrome, url, viewport=WIDE) as page:
            seen = "canvas.map[aria-label^='5000 nodes']"
            page.wait_for_selector(seen, timeout=60_000)
            page.reload()
            page.wait_for_selector(seen, timeout=60_000)
            took_ms = page.evaluate("performance.now()")
            assert took_ms < SLACK * PAINT_MS
            page.focus("canvas.map")
            moved_ms = page.evaluate("""async () => {
                const canvas = document.querySelector('canvas.map');
                const began = performance.now();
                for (let i = 0; i < 10; i++) {
                    const key = {key: 'ArrowRight', bubbles: true};
                    canvas.dispatchEvent(new KeyboardEvent('keydown', key));
                    await new Promise(requestAnimationFrame);
                }
                return (performance.now() - began) / 10;
            }""")
            assert moved_ms < SLACK * INTERACTION_MS
            print(f"all seen after {took_ms:.0f} ms, a key takes {moved_ms:.0f} ms")
