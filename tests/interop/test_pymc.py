"""PyMC models as targets."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv

pytestmark = [
    # PyTensor says so wherever pip installed it; only speed of its own C backend is meant.
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
]
pm = pytest.importorskip("pymc")

from involutive.interop import pymc as bridge  # noqa: E402
from involutive.interop.arviz import group  # noqa: E402

Y = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def foreign_style():
    """PyTensor's JAX code promotes ranks; chains may run in threads, so globally."""
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_numpy_rank_promotion", "raise")


def hierarchical():
    with pm.Model(coords={"school": ["a", "b", "c"]}) as model:
        mu = pm.Normal("mu", 0, 2)
        tau = pm.HalfNormal("tau", 1)
        pm.Dirichlet("weights", np.ones(3))
        pm.Uniform("rate", -1, 3)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Deterministic("double", 2 * theta, dims="school")
        pm.Deterministic("pair", theta[:2])
        pm.Normal("y", theta, 1, observed=Y, dims="school")
    return model


def test_density_is_the_models():
    """Against PyMC's own compiled log density, log-Jacobians included."""
    model = hierarchical()
    target = bridge.target(model)
    assert target.dim == 1 + 1 + 2 + 1 + 3
    assert list(target.restore(jnp.zeros(8))) == [v.name for v in model.value_vars]
    reference = model.compile_logp()
    for seed in range(3):
        z = np.random.default_rng(seed).normal(size=target.dim)
        point = {name: np.asarray(part) for name, part in target.restore(jnp.asarray(z)).items()}
        np.testing.assert_allclose(target.log_density(jnp.asarray(z)), reference(point), rtol=1e-9)


def test_results_are_constrained_named_with_dims_and_coords():
    target = bridge.target(hierarchical())
    draws = inv.sample(inv.random_walk(target, 0.4), key=0, num_chains=2, num_samples=20)
    posterior = group(draws.to_arviz(), "posterior")
    names = {"mu", "tau", "weights", "rate", "theta", "double", "pair"}
    assert set(posterior.data_vars) == names
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert list(posterior["theta"].coords["school"].values) == ["a", "b", "c"]
    assert posterior["pair"].dims == ("chain", "draw", "pair_dim_0")
    np.testing.assert_allclose(posterior["double"], 2 * posterior["theta"])
    np.testing.assert_allclose(posterior["weights"].sum("weights_dim_0"), 1.0)
    assert (posterior["tau"] > 0).all()
    assert ((posterior["rate"] > -1) & (posterior["rate"] < 3)).all()


def test_samples_the_posterior():
    """Normal mean with a normal prior: the posterior is N(6/4, 1/4)."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 1), 1, observed=Y)
    kernel = inv.random_walk(bridge.target(model), 1.2)
    draws = inv.sample(kernel, key=0, num_chains=16, num_samples=2000, num_warmup=100)
    mu = group(draws.to_arviz(), "posterior")["mu"].to_numpy()
    assert abs(mu.mean() - 1.5) < 0.02
    assert abs(mu.std() - 0.5) < 0.02


def no_free():
    pm.Normal("y", 0, 1, observed=Y)


def discrete():
    pm.Normal("y", pm.Bernoulli("k", 0.5), 1, observed=Y)


def fixed_size():
    pm.Normal("y", pm.Normal("x", shape=3), 1, observed=np.zeros(4))


def positive_data():
    pm.Gamma("y", 2, pm.HalfNormal("rate"), observed=-Y)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (no_free, "must have a free variable to sample, got none; leave at least one"),
        (discrete, "but k is discrete; sum it out, for example with pymc.Mixture"),
        (fixed_size, "must run on its data, but it raised .*shape"),
        (positive_data, "finite somewhere, but it was -inf or NaN .*check the data against"),
    ],
)
def test_bad_models_are_refused_in_one_line(build, words):
    with pm.Model() as model:
        build()
    with pytest.raises(inv.InputError, match=words) as caught:
        bridge.target(model)
    assert "\n" not in str(caught.value)


def test_what_is_not_a_model_is_refused():
    with pytest.raises(inv.InputError, match=r"model must be a pymc.Model, got function"):
        bridge.target(hierarchical)


def test_without_pymc_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(inv.InputError, match=r"pip install 'involutive\[pymc\]'"):
        bridge.target(object())


@pytest.mark.deep
def test_says_that_the_bridge_changed_the_precision_and_works_in_both():
    """In a process of its own, which starts in 32 bits."""
    code = """
        import warnings, jax, jax.numpy as jnp, numpy as np, involutive as inv
        assert jnp.zeros(1).dtype == jnp.float32
        import pymc as pm
        with pm.Model() as model:
            x = pm.Normal("x", 0, 1, shape=3)
            pm.Normal("y", pm.math.sum(x), 1, observed=np.ones(4))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            target = inv.interop.pymc.target(model)
        said = [str(w.message) for w in caught if "64 bits for the whole process" in str(w.message)]
        assert len(said) == 1, said
        draws = {}
        warnings.simplefilter("error")
        for x64 in (True, False):
            jax.config.update("jax_enable_x64", x64)
            target = inv.interop.pymc.target(model)
            kernel = inv.random_walk(target, 0.5)
            draws[x64] = inv.sample(kernel, key=0, num_chains=2, num_samples=50)
        assert draws[True].positions.dtype == np.float64, draws[True].positions.dtype
        assert draws[False].positions.dtype == np.float32, draws[False].positions.dtype
        point = np.array([0.3, -0.2, 0.1])
        narrow = float(target.log_density(jnp.asarray(point)))
        exact = -0.5 * (point @ point + 4 * (1 - point.sum()) ** 2) - 3.5 * np.log(2 * np.pi)
        assert abs(narrow - exact) < 1e-4, (narrow, exact)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


def test_an_angle_is_a_direction_and_has_a_proper_density(getkey):
    """PyMC's own value variable runs along the whole line, where the density repeats itself."""
    with pm.Model() as model:
        pm.VonMises("phi", 3.1, 4.0, shape=2)
    target = bridge.target(model)
    assert target.dim == 4 and target.labels.periods == {"phi": (-np.pi, np.pi)}
    start = target.flatten(target.restore(jnp.ones(4)))
    np.testing.assert_allclose(target.constrain(start)["phi"], np.pi / 4, rtol=1e-6)

    exact = inv.Parameters(phi=inv.VonMises(3.1, 4.0, shape=2))
    points = jr.normal(getkey(), (5, 4))
    ours = [float(target.log_density(x)) for x in points]
    np.testing.assert_allclose(ours, [float(exact.log_prob(x)) for x in points], rtol=1e-5)

    table = inv.sample(
        inv.random_walk(target, 0.3), key=0, num_chains=8, num_samples=100, num_warmup=50
    ).summary().table  # fmt: skip
    assert abs(table.loc["phi[0]", "mean"]) > 2.5 and table.loc["phi[0]", "sd"] < 1
