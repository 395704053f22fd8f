"""The pages: every Python block runs, in order, page by page; the README keeps its promises.

Fast: with a plain kernel in the place of a learned one, and small sizes. Deep: as they stand.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from test_cli import learned

import involutive as inv
from involutive.diagnostics.measured import Estimate

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
    if not {"_build", "jupyter_execute"} & set(page.parts)
]
# plain blocks, and the cells of pages that `make docs` executes, without their options
BLOCK = re.compile(
    r"^```(?:python|\{code-cell\}[^\n]*)\n(?::[^\n]*\n)*(.*?)^```", re.DOTALL | re.MULTILINE
)

pytestmark = [
    pytest.mark.usefixtures("as_users_run", "foreign_style"),
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch, tmp_path):
    """As a user's session begins: in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(monkeypatch):
    """Sizes that take a second."""
    sample = inv.sample

    def few(kernel, **options):
        options["num_chains"] = min(options.get("num_chains", 4), 8)
        options["num_samples"] = min(options.get("num_samples", 40), 40)
        if options.get("until") is not None:
            options["until"] = inv.Until(ess=options["until"].ess, max_samples=40)
        return sample(kernel, **options)

    def learn(target, *, key, **options):
        return learned(target)

    def evidence(kernel, **options):  # the plain kernel has no density of its proposal
        side = Estimate(1.0, 0.01)
        return inv.Evidence(1.0, 0.01, 0.1, 0.9, side, side)

    monkeypatch.setattr(inv, "evidence", evidence)
    monkeypatch.setattr(inv, "sample", few)
    monkeypatch.setattr(inv, "learn", learn)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run(page):
    scope = {"__name__": page.stem}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page.name}, block {number}", "exec"), scope)
    plt.close("all")
    return scope


# ── what pages say beside exact answers ─────────────────────────────────────────────────────────


def doors(page):
    """The line by least squares, the egg box by symmetry, the others by their formulas."""
    rows, sd = page["rows"], page["exact_sd"]
    for i in (0, 1):
        assert rows[:, i].mean() == pytest.approx(page["best"][i], abs=0.1 * sd[i])
        assert rows[:, i].std() == pytest.approx(sd[i], rel=0.08)
    weights = [mode.weight for mode in page["egg_modes"]]
    assert len(weights) == 13
    assert weights == pytest.approx([1 / 13] * 13, abs=0.015)
    wave = page["wave_draws"].get_samples()
    turn = np.mod(wave["phase"] - 6.2 + np.pi, 2 * np.pi) - np.pi
    assert np.corrcoef(wave["offset"], turn)[0, 1] == pytest.approx(0.6, abs=0.03)
    for values, mean, width in ((wave["offset"], 1.0, 0.5), (turn, 0.0, 0.4)):
        assert values.mean() == pytest.approx(mean, abs=0.06 * width)
        assert values.std() == pytest.approx(width, rel=0.06)
    beyond = scipy.stats.norm.sf((2 * np.pi - 6.2) / 0.4)
    assert page["beyond"] == pytest.approx(beyond, abs=0.02)
    b = np.linspace(-12, 12, 20_001)  # a = b + 1 ± 0.3 must lie in (-5, 5)
    inside = np.diff(scipy.stats.norm.cdf((np.array([[-5.0], [5.0]]) - b - 1) / 0.3), axis=0)[0]
    density = scipy.stats.norm.pdf(b, scale=2.0) * inside
    mean = np.sum(b * density) / np.sum(density)
    assert page["named_draws"].get_samples()["b"].mean() == pytest.approx(mean, abs=0.1)


def density(page):
    """Both signs of A alike; sigma of density ∝ σ e^(-2σ) Φ(3/σ); phi of von Mises about π."""
    found = page["bimodal"].get_samples()
    assert np.mean(found["A"] > 0) == pytest.approx(0.5, abs=0.03)
    sigma = np.linspace(1e-3, 15, 20_001)
    weight = sigma * np.exp(-2 * sigma) * scipy.stats.norm.cdf(3 / sigma)
    exact = np.sum(sigma * weight) / np.sum(weight)
    assert found["sigma"].mean() == pytest.approx(exact, abs=0.04)
    turn = np.mod(found["phi"], 2 * np.pi) - np.pi
    assert turn.mean() == pytest.approx(0, abs=0.04)
    assert turn.std() == pytest.approx(scipy.stats.vonmises(2).std(), rel=0.05)


EXACT = {"doors": doors, "density": density}


WITH_CODE = [page for page in PAGES if blocks(page)]


# other libraries to import, and many kernels to compile: run as they stand, in the deep suite
SLOW = (
    "amortised", "arviz", "assess", "compose", "density", "doors", "evidence", "gallery", "models",
)  # fmt: skip


def fast(page):
    return page.stem not in SLOW and page.parent.name != "tutorials"


@pytest.mark.parametrize(
    "page", [page for page in WITH_CODE if fast(page)], ids=lambda page: page.stem
)
def test_the_code_on_the_page_runs(page, small):
    run(page)


@pytest.mark.deep
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_on_the_page_runs_as_it_stands(page):
    scope = run(page)
    EXACT.get(page.stem, lambda scope: None)(scope)


def test_the_bimodal_example_takes_ten_lines_and_no_jacobian():
    """A real number, a positive one and an angle; the deep suite runs it."""
    page = ROOT / "docs" / "density.md"
    (code,) = [block for block in blocks(page) if "inv.angle()" in block]
    lines = [line for line in code.splitlines() if line.strip()]
    imports = ["import jax.numpy as jnp", "import involutive as inv"]
    assert len(imports + lines) <= 10 and "log_det" not in code and "Jacobian" not in code


def test_there_is_code_to_run():
    names = {page.stem for page in WITH_CODE}
    assert names >= {"start", "density", "models", "compose", "method", "verdict", "README"}


def test_every_page_is_listed_and_every_listed_page_exists():
    docs = ROOT / "docs"
    lists = re.findall(r"```\{toctree\}\n(.*?)```", (docs / "index.md").read_text(), re.DOTALL)
    listed = [name for part in lists for name in re.findall(r"^([a-z/-]+)$", part, re.MULTILINE)]
    pages = {str(p.relative_to(docs).with_suffix("")) for p in PAGES if docs in p.parents}
    assert set(listed) == pages - {"index"}
    assert len(listed) == len(set(listed))


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), (page.name, link)
        for image in re.findall(r"```\{image\} (\S+)", text):
            assert (page.parent / image).exists(), (page.name, image)
        for card in re.findall(r"^:link: (\S+)$", text, re.MULTILINE):
            assert (page.parent / f"{card}.md").exists(), (page.name, card)


def test_the_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert "make demo" in text and "make test" in text


def test_commands_on_the_pages_exist(capsys):
    from involutive.cli import main as cli

    named = {
        word
        for page in PAGES
        for word in re.findall(r"\binvolutive ([a-z]+)\b(?= |`|$)", page.read_text("utf-8"))
    }
    known = {"demo", "learn", "sample", "evidence", "report", "experiment", "bench", "doctor"}
    assert known <= named
    assert cli.run(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(command in said for command in known)


def test_every_public_name_has_one_entry_in_the_api():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\.\. auto(?:class|function|exception):: (\S+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries))
    public = {f"involutive.{name}" for name in inv.__all__} - {
        f"involutive.{name}" for name in ("__version__", "interop", "targets")
    }
    public |= {f"involutive.targets.{name}" for name in inv.targets.__all__} - {
        "involutive.targets.Modes",
        "involutive.targets.Target",
    }
    assert public - set(entries) == set()
    assert {name for name in set(entries) - public if ".interop." not in name} == set()
