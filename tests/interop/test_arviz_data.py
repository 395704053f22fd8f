"""ArviZ's groups on data: from a pointwise log likelihood, NumPyro and PyMC models."""

import warnings
from functools import wraps

import arviz as az
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import involutive as inv
from involutive.interop.arviz import group

Y = np.array([1.0, 2.0, 3.5])
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
]


def terms(mu):
    return -0.5 * (Y - mu) ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def few(target, count=40):
    kernel = inv.random_walk(target, 1.0)
    return inv.sample(kernel, key=0, num_chains=2, num_samples=count)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_a_pointwise_log_likelihood_gives_the_group():
    parameters = inv.Parameters(mu=inv.Normal(0.0, 2.0))
    target = inv.Target(lambda mu: jnp.sum(terms(mu)), parameters, log_likelihood=terms)
    draws = few(target)
    data = draws.to_arviz(prior=25)
    found = group(data, "log_likelihood")["y"]
    assert found.dims[:2] == ("chain", "draw") and found.shape == (2, 40, 3)
    np.testing.assert_allclose(found, jax.vmap(jax.vmap(terms))(draws["mu"]), rtol=1e-12)
    assert group(data, "prior")["mu"].shape == (1, 25)
    found = az.loo(data)
    assert np.isfinite(found.elpd_loo if hasattr(found, "elpd_loo") else found.elpd)
    assert "log_likelihood" not in draws.to_arviz(log_likelihood=False)


@pytest.mark.filterwarnings("ignore")  # ArviZ's own, on few draws
def test_arviz_reads_it():
    """Its functions on either line; those of predictions: below, of a NumPyro model."""
    data = {}
    for sd in (1.0, 5.0):
        parameters = inv.Parameters(mu=inv.Normal(0.0, sd), nu=inv.Normal(0.0, 1.0))
        target = inv.Target(
            lambda mu, nu: jnp.sum(terms(mu)), parameters, log_likelihood=lambda mu, nu: terms(mu)
        )
        data[f"prior of sd {sd}"] = few(target).to_arviz()
    first, second = data.values()
    assert list(az.summary(first).index) == ["mu", "nu"]
    assert set(az.compare(data).index) == set(data)
    if hasattr(az, "waic"):  # ArviZ 0.x
        assert np.isfinite(az.waic(second).elpd_waic)
    az.plot_trace(first)
    az.plot_pair(second, var_names=["mu", "nu"])
    plt.close("all")


def test_of_a_vector_and_of_a_pytree():
    plain = inv.Target(lambda x: jnp.sum(terms(x[0])), 1, log_likelihood=lambda x: terms(x[0]))
    nested = inv.Target(
        lambda z: jnp.sum(terms(z["mu"])), like={"mu": 0.0},
        log_likelihood=lambda z: {"height": terms(z["mu"])},
    )  # fmt: skip
    assert list(group(few(plain).to_arviz(), "log_likelihood").data_vars) == ["y"]
    assert list(group(few(nested).to_arviz(), "log_likelihood").data_vars) == ["height"]


def of_numpy(mu):
    """The same without its constant, in NumPy: a traced value would be refused."""
    assert isinstance(mu, np.ndarray | np.generic)
    return -0.5 * (Y - mu) ** 2


NUMPY = {
    "by name": (lambda z, mu: of_numpy(mu), {}),
    "as a dict": (lambda p: of_numpy(p["mu"]), {}),
    "as a vector": (lambda theta: of_numpy(theta[1]), {"arguments": "vector"}),
    "in rows": (lambda z, mu: of_numpy(mu[:, None]), {"vectorized": True}),
    "in rows of vectors": (
        lambda theta: of_numpy(theta[:, 1:]), {"vectorized": True, "arguments": "vector"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pointwise", "options"), NUMPY.values(), ids=NUMPY)
def test_of_a_numpy_function(pointwise, options):
    """It is called as the density is; values come in the order declared, not by the alphabet."""

    @wraps(pointwise)
    def density(*given, **named):
        return np.sum(pointwise(*given, **named), axis=-1)

    parameters = inv.Parameters(z=inv.Normal(0.0, 1.0), mu=inv.Normal(0.0, 2.0))
    target = inv.Target(density, parameters, backend="numpy", log_likelihood=pointwise, **options)
    draws = few(target, 8)
    found = group(draws.to_arviz(), "log_likelihood")["y"]
    assert found.dims[:2] == ("chain", "draw") and found.shape == (2, 8, 3)
    np.testing.assert_allclose(found, of_numpy(draws["mu"][..., None]), rtol=1e-12)


def test_what_a_bare_density_cannot_give_is_named():
    draws = few(inv.targets.gaussian(1))
    with pytest.raises(inv.InputError, match="posterior_predictive needs a model"):
        draws.to_arviz(posterior_predictive=True)
    with pytest.raises(inv.InputError, match="prior needs a prior"):
        draws.to_arviz(prior=10)


@pytest.mark.usefixtures("as_users_run")
def test_a_log_likelihood_that_is_no_function():
    with pytest.raises(inv.InputError, match="log_likelihood must be a function, got int"):
        inv.Target(lambda x: -jnp.sum(x**2), 1, log_likelihood=3)


def numpyro_schools(sigma, y):
    import numpyro
    from numpyro import distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def numpyro_pooled(sigma, y):
    import numpyro
    from numpyro import distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("school", 8):
        numpyro.sample("obs", dist.Normal(mu, sigma), obs=y)


def pymc_schools(pooled=False):
    pm = pytest.importorskip("pymc")
    with pm.Model(coords={"school": np.arange(8)}) as model:
        sigma = pm.Data("sigma", SIGMA, dims="school")
        theta = pm.Normal("mu", 0, 5)
        if not pooled:
            tau = pm.HalfCauchy("tau", 5)
            z = pm.Normal("z", 0, 1, dims="school")
            theta = pm.Deterministic("theta", theta + tau * z, dims="school")
        pm.Normal("obs", theta, sigma, observed=SCHOOLS, dims="school")
    return model


@pytest.mark.usefixtures("foreign_style")
def test_a_numpyro_model_gives_every_group():
    from numpyro import distributions as dist

    target = inv.interop.numpyro.target(numpyro_schools, SIGMA, SCHOOLS)
    assert target.has_prior and not inv.targets.gaussian(1).has_prior
    draws = few(target)
    data = draws.to_arviz(posterior_predictive=True, prior=30)
    log_likelihood = group(data, "log_likelihood")["obs"]
    assert log_likelihood.dims == ("chain", "draw", "school")
    expected = dist.Normal(draws["theta"], SIGMA).log_prob(SCHOOLS)
    np.testing.assert_allclose(log_likelihood, expected, rtol=1e-9)
    np.testing.assert_array_equal(group(data, "observed_data")["obs"], SCHOOLS)
    np.testing.assert_array_equal(group(data, "constant_data")["sigma"], SIGMA)
    new = group(data, "posterior_predictive")["obs"]
    assert new.dims == ("chain", "draw", "school")
    away = (new.to_numpy() - draws["theta"]) / SIGMA
    assert abs(away.mean()) < 0.15 and abs(away.std() - 1) < 0.15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ's own
        (az.plot_ppc if hasattr(az, "plot_ppc") else az.plot_ppc_dist)(data)
    plt.close("all")
    prior = group(data, "prior")
    assert prior["theta"].shape == (1, 30, 8) and abs(float(prior["mu"].std()) - 5) < 3
    assert group(data, "prior_predictive")["obs"].shape == (1, 30, 8)


@pytest.mark.usefixtures("foreign_style")
def test_enumerated_sites_are_summed_out():
    pytest.importorskip("funsor")
    import numpyro
    from numpyro import distributions as dist

    weights, y = jnp.array([0.4, 0.6]), np.array([-3.1, -2.8, 2.9, 3.2])

    def labelled(y):
        m = numpyro.sample("m", dist.Normal(jnp.array([-3.0, 3.0]), 1).to_event(1))
        with numpyro.plate("n", len(y)):
            k = numpyro.sample("k", dist.Categorical(weights), infer={"enumerate": "parallel"})
            numpyro.sample("obs", dist.Normal(m[k], 1.0), obs=y)

    def summed(y):
        m = numpyro.sample("m", dist.Normal(jnp.array([-3.0, 3.0]), 1).to_event(1))
        mixed = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(m, 1.0))
        with numpyro.plate("n", len(y)):
            numpyro.sample("obs", mixed, obs=y)

    ours, theirs = (inv.interop.numpyro.target(model, y) for model in (labelled, summed))
    for point in ([0.0, 0.0], [-3.0, 3.0], [1.0, 2.0]):
        x = jnp.array(point)
        np.testing.assert_allclose(ours.log_density(x), theirs.log_density(x), rtol=1e-9)
    assert list(group(few(ours).to_arviz(), "posterior").data_vars) == ["m"]


@pytest.mark.deep
@pytest.mark.usefixtures("foreign_style")
@pytest.mark.filterwarnings("ignore")
def test_schools_agree_between_numpyro_and_pymc():
    """az.loo and az.compare from both libraries agree to 0.05, and the plots run."""
    targets = {
        "numpyro": [
            inv.interop.numpyro.target(model, SIGMA, SCHOOLS)
            for model in (numpyro_schools, numpyro_pooled)
        ],
        "pymc": [inv.interop.pymc.target(pymc_schools(pooled)) for pooled in (False, True)],
    }
    tables = {}
    for number, (name, pair) in enumerate(targets.items()):
        data = []
        for target in pair:
            draws = inv.sample(
                inv.hmc(target, 0.35, 8), key=number, num_chains=16, num_samples=2000,
                num_warmup=300,
            )  # fmt: skip
            data.append(draws.to_arviz(posterior_predictive=True, prior=50))
        tables[name] = az.compare(dict(zip(("schools", "pooled"), data, strict=True)))
        az.summary(data[0])
        az.loo(data[0])
        if hasattr(az, "waic"):  # ArviZ 0.x
            az.waic(data[0])
        az.plot_trace(data[0])
        az.plot_pair(data[0], var_names=["mu", "tau"])
        (az.plot_ppc if hasattr(az, "plot_ppc") else az.plot_ppc_dist)(data[0])
        assert {"observed_data", "constant_data", "prior_predictive"} <= set(_names(data[0]))
    column = "elpd_loo" if "elpd_loo" in tables["pymc"] else "elpd"
    gaps = tables["numpyro"][column] - tables["pymc"][column]
    assert np.abs(gaps).max() < 0.05


def _names(data):
    found = data.groups() if callable(getattr(data, "groups", None)) else data.groups
    return [name.strip("/") for name in found]
