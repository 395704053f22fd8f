"""The report: what it says, and that a browser opens it without error or request.

The browser tests need Chromium; where there is none they skip, and say so.
"""

import os
import re
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from test_cli import learned

import involutive as inv
from involutive.diagnostics.assess import Assessment
from involutive.interop.arviz import read_draws, to_netcdf
from involutive.report.moves import moves, with_kernel

CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome")
                 if (p := shutil.which(name))), None)  # fmt: skip
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium on PATH: the browser tests of the report did not run; "
    "apt-get install chromium",
)
KEEP = os.environ.get("INVOLUTIVE_SCREENSHOTS")  # a folder to look at the screenshots in

pytestmark = pytest.mark.usefixtures("as_users_run")


def independent(target, chains=8, draws=400, shift=0.0, target_draws=None):
    """Draws that need no sampler: independent, or with half of the chains moved away."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(chains, draws, target.dim)) if target_draws is None else target_draws
    x[: chains // 2] += shift
    ones = np.ones((chains, draws))
    zeros = np.zeros(chains, int)
    return inv.Draws(x, -0.5 * (x**2).sum(2), ones > 0, 0.9 * ones, zeros, zeros, zeros > 0,
                     target, {"version": "test", "sampling_seconds": 1.0})  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A full report: moves, learning curves and the bound."""
    kernel = learned(inv.targets.gaussian(2))
    bounds = np.array([0.5, 0.25, 0.125])
    bound = Assessment((1, 2, 3), bounds, 0.1 * bounds, 64, 256, "exact draws", "gaussian")
    draws = independent(kernel.target)
    path = tmp_path_factory.mktemp("report") / "good.html"
    return draws.report(path, kernel=kernel, assessment=bound)


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "bad.html"
    return independent(inv.targets.gaussian(3), shift=4.0).report(path)


def words(path):
    """The text of a page outside style and drawings."""
    text = re.sub(r"<style.*?</style>|<svg.*?</svg>", " ", path.read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_the_verdict_comes_first(good, bad):
    for path, head in (
        (good, "These draws can be trusted, as far as the chains can tell."),
        (bad, "Do not trust these draws yet."),
    ):
        text = words(path)
        assert head in text
        assert text.index(head) < text.index("quantity")
    assert "chains disagree" in words(bad) and "Try:" in words(bad)


def test_every_section_is_there(good):
    text = good.read_text()
    for anchor in ("table", "density", "pairs", "ranks", "traces", "lags", "acceptance", "moves",
                   "learning", "bound", "provenance"):  # fmt: skip
        assert f'<section id="{anchor}"' in text, anchor
        assert f'href="#{anchor}"' in text
    for column in ("mean", "sd", "5%", "95%", "ESS bulk", "R-hat", "MCSE"):
        assert f'<th scope="col">{column}</th>' in text


def test_the_bound_is_shown_with_what_it_does_not_say(good):
    text = words(good)
    assert "After 3 steps: at most 0.125 nats from gaussian (95% interval 0.101 to 0.149)." in text
    assert "M = 64 chains, 256 starts; posterior draws: exact draws." in text
    assert "What it does not say: that these draws are right." in text


def test_it_is_one_small_file_that_asks_for_nothing(good):
    text = good.read_text()
    assert len(text) < 1_500_000
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "<script" not in text and "@import" not in text


def test_it_can_be_read_without_seeing(good):
    text = good.read_text()
    for mark in ('lang="en"', '<main id="main"', "<nav aria-label", 'class="skip" href="#main"',
                 "prefers-color-scheme: dark", "@media print", ":focus-visible"):  # fmt: skip
        assert mark in text, mark
    drawings = re.findall(r"<svg [^>]*>", text)
    assert len(drawings) >= 8
    assert all('role="img"' in d and re.search(r'aria-label="[^"]{8,}"', d) for d in drawings)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_black_follows_the_page(good):
    drawings = re.findall(r"<svg.*?</svg>", good.read_text(), flags=re.DOTALL)
    assert not any("#000000" in d for d in drawings)
    assert all("currentColor" in d for d in drawings)


def test_names_are_escaped(tmp_path):
    target = inv.Target(lambda x: -jnp.sum(x**2), 1, name="<script>alert(1)</script>")
    text = independent(target).report(tmp_path / "r.html").read_text()
    assert "<script" not in text and "&lt;script&gt;" in text


@pytest.mark.deep
def test_draws_read_from_a_file_make_the_same_report(tmp_path):
    kernel = learned(inv.targets.mog6())
    draws = with_kernel(independent(kernel.target), kernel)
    draws.provenance["target"] = kernel.target.name  # as `sample` notes it
    draws.modes()  # as its summary does, before they are written
    to_netcdf(draws, tmp_path / "d.nc")
    one = draws.report(tmp_path / "a.html").read_text()
    other = read_draws(tmp_path / "d.nc").report(tmp_path / "b.html").read_text()
    assert one == other
    assert '<section id="modes"' in one


@pytest.mark.parametrize(
    ("chains", "draws", "dim"),
    [
        (1, 1, 1),
        *(
            pytest.param(*size, marks=pytest.mark.deep)
            for size in ((1, 3, 2), (2, 8, 12), (3, 50, 1))
        ),
    ],
)
def test_every_size_makes_a_report(chains, draws, dim, tmp_path):
    found = independent(inv.targets.gaussian(dim), chains, draws)
    assert found.report(tmp_path / "r.html").stat().st_size > 5000


def test_constant_draws_make_a_report(tmp_path):
    target = inv.targets.gaussian(2)
    found = independent(target, 4, 100, target_draws=np.ones((4, 100, 2)))
    assert "Do not trust" in words(found.report(tmp_path / "r.html"))


def test_moves_are_the_kernels_own(getkey):
    target = inv.targets.gaussian(2)
    kernel = inv.random_walk(target, 0.01)
    found = moves(independent(target), kernel)
    start, end = np.array(found["start"]), np.array(found["end"])
    assert start.shape == end.shape == (48, 2)
    step = np.abs(end - start)
    assert 0 < step.max() < 0.06
    assert found["axes"] == ["x[0]", "x[1]"]
    wide = moves(independent(inv.targets.gaussian(5)), inv.hmc(inv.targets.gaussian(5), 0.1, 2))
    assert wide["axes"][0] == "first principal direction" and len(wide["start"][0]) == 2


def test_refusals(tmp_path):
    draws = independent(inv.targets.gaussian(1))
    with pytest.raises(inv.InputError, match="the report's folder must exist, got"):
        draws.report(tmp_path / "no" / "r.html")
    with pytest.raises(inv.InputError, match=r"must end in .html or .htm"):
        draws.report(tmp_path)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(inv.InputError, match="must be a file that can be written"):
        draws.report(tmp_path / "folder.html")


def test_notebooks_show_kernels_and_draws():
    kernel = learned(inv.targets.gaussian(2))
    text = kernel._repr_html_()
    assert "Leapfrog, auxiliary StandardNormal (90% of steps)" in text and "12,345" in text
    assert "No sign of trouble" in independent(kernel.target)._repr_html_()


# ── In a browser ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@needs_browser
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1400),
        pytest.param("dark", 400, marks=pytest.mark.deep),
        pytest.param("light", 400, marks=pytest.mark.deep),
        pytest.param("dark", 1400, marks=pytest.mark.deep),
    ],
)
def test_a_browser_opens_it(browser, good, bad, width, scheme, tmp_path):
    for path, head in ((good, "can be trusted"), (bad, "Do not trust")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        errors, asked = [], []
        page.on("console", lambda m, found=errors: found.append(m.text))
        page.on("pageerror", lambda e, found=errors: found.append(str(e)))
        page.on("request", lambda r, found=asked: found.append(r.url))
        page.goto(path.as_uri())
        verdict = page.locator("#verdict")
        assert verdict.is_visible() and head in verdict.inner_text()
        box = verdict.bounding_box()
        assert box is not None and box["y"] < 450  # seen without scrolling
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert errors == []
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        folder = Path(KEEP) if KEEP else tmp_path
        shot = folder / f"{path.stem}-{width}-{scheme}.png"
        page.screenshot(path=str(shot), full_page=True)
        assert shot.stat().st_size > 20_000
        context.close()


@pytest.mark.deep
@needs_browser
def test_the_keyboard_reaches_the_verdict_and_the_sections(browser, good):
    page = browser.new_page()
    page.goto(good.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # shown when it has the focus
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#table"
    page.close()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.deep)])
def test_axe_finds_nothing_serious(browser, good, bad, scheme):
    """The rules of axe-core, which look for what screen readers and keyboards cannot use."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for path in (good, bad):
        page = browser.new_context(color_scheme=scheme).new_page()
        page.goto(path.as_uri())
        found = axe.run(page).response["violations"]
        page.close()
        serious = {row["id"]: row["nodes"][0]["html"][:200] for row in found
                   if row["impact"] in ("serious", "critical")}  # fmt: skip
        assert serious == {}


@needs_browser
def test_figures_shrink_with_the_page(browser, good):
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(good.as_uri())
    widths = page.eval_on_selector_all("svg.figure", "all => all.map(s => s.clientWidth)")
    inside = page.eval_on_selector_all(
        ".wide.drawing", "all => all.map(d => d.scrollWidth <= d.clientWidth)"
    )
    page.close()
    assert len(widths) >= 8 and max(widths) < 400 and all(inside)
