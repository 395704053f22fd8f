"""Every example runs, and agrees with its reference.

Fast: the models and their exact references, with a plain kernel in the place of a learned one.
Deep: the examples as they stand.
"""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import involutive as inv

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = [
    pytest.mark.usefixtures("foreign_style"),
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
]


@pytest.fixture
def plain(monkeypatch):
    """`budget(target)` in the place of `learn`: what is tested is the model and its reference."""
    monkeypatch.setattr(inv, "learn", lambda target, *, key, budget: budget(target))
    monkeypatch.setattr(inv, "sample", partial(inv.sample, num_warmup=500))


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def five_lines(name):
    """The statements of `main`, without its docstring."""
    text = (EXAMPLES / f"{name}.py").read_text()
    body = text.split('"""Return ArviZ\'s table."""')[1].split("if __name__")[0]
    return [line.strip() for line in body.splitlines() if line.strip()]


def test_five_lines_are_the_same_for_numpyro_and_pymc():
    lines = five_lines("five_lines_numpyro")
    assert lines == five_lines("five_lines_pymc")
    assert len(lines) <= 5
    assert lines[0] == "target = bridge.target(model)" and lines[-1] == "return az.summary(data)"


def test_every_example_is_tested():
    here = Path(__file__).read_text()
    names = [path.stem for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 7
    assert [name for name in names if f'"{name}"' not in here] == []


def check_gp(rows):
    for name, exact in rows["exact"].items():
        assert abs(rows["sampled"][name] - exact) < 0.06, (name, rows["sampled"][name], exact)


def check_supports(rows):
    for name, (mean, sd) in rows["exact"].items():
        got_mean, got_sd = rows["sampled"][name]
        assert abs(got_mean - mean) < 0.1 * sd, (name, got_mean, mean)
        assert abs(got_sd / sd - 1) < 0.1, (name, got_sd, sd)


def check_schools(rows, kinds):
    for kind in kinds:
        for name, tolerance in {"mu": 0.3, "theta[0]": 0.4}.items():
            assert abs(rows[kind][name] - rows["exact"][name]) < tolerance, (kind, name, rows)
        for name in ("P(tau < 1)", "P(tau < 5)"):
            assert abs(rows[kind][name] - rows["exact"][name]) < 0.03, (kind, name, rows)


@pytest.mark.deep
def test_gp_reference_agrees_with_its_model(plain):
    check_gp(
        example("gp_regression").main(budget=lambda t: inv.random_walk(t, 0.8), num_samples=1500)
    )


@pytest.mark.deep
def test_supports_reference_agrees_with_its_model(plain):
    check_supports(
        example("supports").main(budget=lambda t: inv.random_walk(t, 0.25), num_samples=1500)
    )


@pytest.mark.deep
def test_eight_schools_reference_agrees_with_its_model(plain):
    module = example("eight_schools")
    rows = {
        "exact": module.exact(),
        "non-centred": module.figures(module.non_centred, lambda t: inv.hmc(t, 0.3, 4), 600),
    }
    check_schools(rows, ["non-centred"])


def test_orders_of_labels_are_told_apart():
    module = example("free_labels")
    means = np.array(list(module.ORDERS), float)[None]
    assert sorted(module.order(means)[0].tolist()) == list(range(6))


# ── As they stand ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.deep
@pytest.mark.parametrize("name", ["five_lines_numpyro", "five_lines_pymc"])
def test_five_lines_run(name):
    table = example(name).main()
    assert abs(table.loc["mu", "mean"].astype(float) - 4.46) < 0.2
    assert abs(table.loc["tau", "mean"].astype(float) - 3.28) < 0.2
    assert (table["r_hat"].astype(float) < 1.02).all()


@pytest.mark.deep
def test_free_labels_visits_every_order_where_nuts_stays_in_one():
    figures = example("free_labels").main()
    np.testing.assert_allclose(figures["share of each order"], figures["exact share"], atol=0.03)
    assert figures["orders a chain visits"] > 5.5
    assert figures["orders a NUTS chain visits"] == 1


@pytest.mark.deep
def test_eight_schools():
    check_schools(example("eight_schools").main(), ["centred", "non-centred"])


@pytest.mark.deep
def test_gp_regression():
    check_gp(example("gp_regression").main())


@pytest.mark.deep
def test_supports():
    check_supports(example("supports").main())


@pytest.mark.deep
def test_hierarchical_logistic():
    rows = example("hierarchical_logistic").main()
    ours, nuts = rows["involutive"], rows["nuts"]
    np.testing.assert_allclose(ours["mean"], nuts["mean"], atol=0.1 * nuts["sd"].max())
    np.testing.assert_allclose(ours["sd"], nuts["sd"], rtol=0.1)


@pytest.mark.deep
def test_a_proposal_that_follows_the_state_keeps_the_funnel_and_moves_in_it():
    module = example("state_dependent_proposal")
    fixed, following = module.compare(num_samples=600, num_chains=64).values()
    assert following["ESS per draw"] > 1.5 * fixed["ESS per draw"]
    error = 3 / (following["ESS per draw"] * 600 * 64) ** 0.5
    assert abs(following["mean"]) < 5 * error and abs(following["sd"] - 3) < 5 * error


@pytest.mark.deep
def test_doors():
    """Code of emcee, dynesty and nautilus, against what is known exactly or by least squares."""
    found = example("doors").main()
    for name in ("line", "wave", "named"):
        assert found[name].summary().trustworthy
    module = example("doors")
    slope, intercept = np.polyfit(module.X, module.Y, 1)
    line = found["line"].positions.reshape(-1, 3)
    np.testing.assert_allclose(line[:, :2].mean(axis=0), [slope, intercept], atol=0.05)
    wave = found["wave"].summary().table
    assert abs(wave.loc["offset", "mean"] - 1) < 0.05
    assert abs(np.mod(wave.loc["phase", "mean"] - 6.2 + np.pi, 2 * np.pi) - np.pi) < 0.05
    np.testing.assert_allclose(wave["sd"][:2], [0.5, 0.4], rtol=0.1)
    box = found["egg box"].to_arviz()["posterior"]
    assert abs(float(box["x"].mean())) < 1  # of sd 8.4
    named = found["named"].summary().table
    assert abs(named.loc["a", "mean"] - named.loc["b", "mean"] - 1) < 0.05
