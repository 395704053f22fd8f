"""NumPyro models as targets, and the NumPyro kernel."""

import subprocess
import sys
import textwrap

import arviz as az
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC
from numpyro.infer.util import log_density
from scipy import stats

import involutive as inv
from involutive.interop import numpyro as bridge
from involutive.interop.arviz import group

Y = np.array([1.0, 2.0, 3.0])

pytestmark = pytest.mark.usefixtures("foreign_style")


def supports(y):
    """A model with every kind of support and a deterministic site in a plate."""
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("rate", dist.Uniform(-1, 3))
    numpyro.sample("chol", dist.LKJCholesky(2))
    with numpyro.plate("group", 3):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("double", 2 * theta)
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)


def conjugate(y):
    """Normal mean with a normal prior: the posterior is N(sum(y) / (n + 1), 1 / (n + 1))."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def schools(y):
    """A plate with a deterministic site in it."""
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("group", 3):
        theta = numpyro.sample("theta", dist.Normal(mu, 1))
        numpyro.deterministic("double", 2 * theta)
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)


def walk(target, key):
    """A proposal that needs no learning, so that what is tested is the bridge."""
    del key
    return inv.random_walk(target, 1.2)


def run(model=conjugate, data=(Y,), learn=walk, fields=(), **options):
    sizes = {"num_warmup": 200, "num_samples": 2000, "num_chains": 2, "chain_method": "vectorized"}
    mcmc = MCMC(bridge.InvolutiveKernel(model, learn=learn), progress_bar=False, **sizes | options)
    mcmc.run(jr.key(0), *data, extra_fields=fields)
    return mcmc


# ── Targets ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.deep
def test_density_is_the_models_with_log_jacobians():
    """Difference of log densities at two points, against NumPyro's density and its transforms."""
    target = bridge.target(supports, Y)

    def reference(x):
        sites = target.constrain(x)
        latent = {name: sites[name] for name in sites if name != "double"}
        laws = {
            "mu": dist.Normal(0, 2), "tau": dist.HalfNormal(1), "rate": dist.Uniform(-1, 3),
            "weights": dist.Dirichlet(jnp.ones(3)), "chol": dist.LKJCholesky(2),
            "theta": dist.Normal(0, 1),
        }  # fmt: skip
        total, _ = log_density(supports, (Y,), {}, latent)
        for name, value in latent.items():
            to = dist.biject_to(laws[name].support)
            free = to.inv(value)
            total = total + jnp.sum(to.log_abs_det_jacobian(free, value))
        return total

    a, b = 0.7 * jr.normal(jr.key(1), (2, target.dim))
    gap = target.log_density(a) - target.log_density(b)
    np.testing.assert_allclose(gap, reference(a) - reference(b), rtol=1e-9)


def test_results_are_constrained_named_and_include_deterministic_sites():
    target = bridge.target(supports, y=Y)
    assert target.dim == 1 + 1 + 2 + 1 + 1 + 3
    assert target.name == "supports"
    draws = inv.sample(walk(target, None), key=0, num_chains=2, num_samples=20, initial=None)
    posterior = group(draws.to_arviz(), "posterior")
    assert set(posterior.data_vars) == {"mu", "tau", "weights", "rate", "chol", "theta", "double"}
    assert posterior["theta"].dims == ("chain", "draw", "group")
    assert posterior["double"].dims == ("chain", "draw", "group")
    assert posterior["chol"].shape == (2, 20, 2, 2)
    np.testing.assert_allclose(posterior["double"], 2 * posterior["theta"])
    np.testing.assert_allclose(posterior["weights"].sum("weights_dim_0"), 1.0)
    assert (posterior["tau"] > 0).all()
    assert ((posterior["rate"] > -1) & (posterior["rate"] < 3)).all()


def test_plates_and_event_dims_name_the_axes():
    def model():
        with numpyro.plate("row", 2, dim=-2), numpyro.plate("column", 3, dim=-1):
            numpyro.sample("grid", dist.Normal(0, 1))
            numpyro.sample(
                "vector", dist.Normal(0, 1).expand([4]).to_event(1), infer={"event_dims": ["part"]}
            )
        numpyro.sample("plain", dist.Normal(0, 1).expand([2]))

    dims = bridge.target(model).labels.dims
    assert dims["grid"] == ["row", "column"]
    assert dims["vector"] == ["row", "column", "part"]
    assert dims["plain"] == ["plain_dim_0"]


def no_latent(y):
    numpyro.sample("y", dist.Normal(0, 1), obs=y)


def discrete(y):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(k, 1), obs=y)


def fixed_size(y):
    x = numpyro.sample("x", dist.Normal(0, 1).expand([3]))
    numpyro.sample("y", dist.Normal(x, 1), obs=y)


def positive_data(y):
    rate = numpyro.sample("rate", dist.HalfNormal(1))
    numpyro.sample("y", dist.Gamma(2, rate), obs=y)


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (no_latent, Y, "must have a latent variable to sample, got none; leave at least one"),
        (discrete, Y, "but k is discrete; sum it out, for example with .*MixtureSameFamily"),
        (fixed_size, np.zeros(4), "must run on the data it is given, but it raised .*shapes"),
        (positive_data, -Y, "finite somewhere, but it was -inf or NaN .*check the data against"),
        ("model", Y, "model must be a NumPyro model, a function, got str"),
    ],
)
def test_bad_models_are_refused_in_one_line(model, data, words, as_users_run):
    with pytest.raises(inv.InputError, match=words) as caught:
        bridge.target(model, data)
    assert "\n" not in str(caught.value)


def test_without_numpyro_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("involutive.interop.numpyro")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(inv.interop, "numpyro")
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(inv.InputError, match=r"pip install 'involutive\[numpyro\]'"):
        _ = inv.interop.numpyro
    with pytest.raises(ImportError, match=r"pip install 'involutive\[numpyro\]'"):
        __import__("involutive.interop.numpyro")


# ── The kernel ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.deep
def test_kernel_samples_the_posterior():
    mcmc = run(num_chains=4)
    mu = np.asarray(mcmc.get_samples()["mu"])
    assert mu.shape == (8000,)
    exact = stats.norm(Y.sum() / 4, 0.5)
    assert abs(mu.mean() - exact.mean()) < 0.05
    assert abs(mu.std() - exact.std()) < 0.04
    assert abs((mu < exact.ppf(0.1)).mean() - 0.1) < 0.03


@pytest.mark.deep
def test_chain_methods_agree_and_extra_fields_are_collected():
    fields = ("accept_prob", "potential_energy", "z.mu", "mean_accept_prob")
    vector = run(fields=fields)
    follow = run(fields=fields, chain_method="sequential")
    np.testing.assert_allclose(vector.get_samples()["mu"], follow.get_samples()["mu"], rtol=1e-6)
    extra = vector.get_extra_fields(group_by_chain=True)
    np.testing.assert_array_equal(extra["z.mu"], vector.get_samples(group_by_chain=True)["mu"])
    rates = extra["accept_prob"]
    np.testing.assert_allclose(extra["mean_accept_prob"][:, -1], rates.mean(axis=1), rtol=1e-6)
    x = np.asarray(extra["z.mu"])
    energy = 0.5 * x**2 + 0.5 * ((x[..., None] - Y) ** 2).sum(-1)
    offset = extra["potential_energy"] - energy
    np.testing.assert_allclose(offset, offset[0, 0])


@pytest.mark.deep
def test_summary_and_arviz_work(capsys):
    mcmc = run(
        schools,
        fields=("accept_prob", "potential_energy"),
    )
    mcmc.print_summary(exclude_deterministic=False)
    printed = capsys.readouterr().out
    assert "double[2]" in printed and "Number of divergences: 0" in printed
    data = az.from_numpyro(mcmc)
    assert group(data, "posterior")["theta"].dims == ("chain", "draw", "group")
    stats_group = group(data, "sample_stats")
    assert {"lp", "acceptance_rate", "diverging"} <= set(stats_group.data_vars)
    energy = mcmc.get_extra_fields(group_by_chain=True)["potential_energy"]
    np.testing.assert_allclose(stats_group["lp"], -energy)


@pytest.mark.deep
def test_sampling_goes_on_from_a_post_warmup_state():
    mcmc = run()
    first, last = mcmc.get_samples(group_by_chain=True)["mu"], mcmc.last_state
    mcmc.post_warmup_state = last
    mcmc.run(last.rng_key, Y)
    second = mcmc.get_samples(group_by_chain=True)["mu"]
    assert second.shape == first.shape and not np.array_equal(first, second)
    assert int(mcmc.last_state.i[0]) == int(last.i[0]) + first.shape[1]
    np.testing.assert_allclose(last.z["mu"], first[:, -1])


@pytest.mark.deep
def test_learns_once_a_data_set():
    learned = []

    def learn(target, key):
        learned.append(target)
        return walk(target, key)

    sizes = {"num_warmup": 50, "num_samples": 1000, "num_chains": 2, "progress_bar": False}
    mcmc = MCMC(bridge.InvolutiveKernel(conjugate, learn=learn), chain_method="sequential", **sizes)
    mcmc.run(jr.key(0), Y)
    mcmc.run(jr.key(1), Y.copy())
    assert len(learned) == 1
    mcmc.run(jr.key(2), Y + 8)
    assert len(learned) == 2
    assert abs(mcmc.get_samples()["mu"].mean() - (Y + 8).sum() / 4) < 0.15


# NumPyro donates buffers that vmap cannot reuse
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable:UserWarning")
@pytest.mark.deep
@pytest.mark.parametrize("chain_method", ["vectorized", jax.vmap])
def test_learns_by_itself_in_warmup(chain_method):
    """Also where the chains are traced, as under pmap: two modes, each visited half the time."""

    def two_modes():
        x = numpyro.sample("x", dist.Uniform(-20, 20))
        numpyro.factor("modes", jnp.logaddexp(-2 * (x - 6) ** 2, -2 * (x + 6) ** 2))

    mcmc = run(two_modes, (), learn=None, num_warmup=100, chain_method=chain_method)
    x = np.asarray(mcmc.get_samples(group_by_chain=True)["x"])
    assert np.abs((x > 0).mean(axis=1) - 0.5).max() < 0.1
    assert abs(np.abs(x).mean() - 6) < 0.1


def test_a_potential_of_any_pytree():
    def potential(z):
        return 0.5 * jnp.sum((z["a"] - 1) ** 2) + 0.5 * (z["b"][0] / 2) ** 2

    kernel = bridge.InvolutiveKernel(potential_fn=potential, learn=walk)
    mcmc = MCMC(
        kernel,
        num_warmup=100,
        num_samples=4000,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    start = {"a": jnp.zeros((2, 2)), "b": [jnp.zeros(2)]}
    mcmc.run(jr.key(0), init_params=start)
    samples = mcmc.get_samples()
    assert samples["a"].shape == (8000, 2) and samples["b"][0].shape == (8000,)
    np.testing.assert_allclose(samples["a"].mean(axis=0), 1.0, atol=0.15)
    assert abs(samples["b"][0].std() - 2.0) < 0.25


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bridge.InvolutiveKernel(), "give either model or potential_fn, got neither"),
        (
            lambda: bridge.InvolutiveKernel(conjugate, lambda z: z),
            "give either model or potential_fn, got both",
        ),
        (lambda: run(jit_model_args=True), "data must be concrete.*jit_model_args=False"),
        (lambda: run(discrete), "k is discrete"),
    ],
)
def test_bad_kernels_are_refused(make, words):
    with pytest.raises(inv.InputError, match=words):
        make()


def test_potential_without_start_is_refused():
    kernel = bridge.InvolutiveKernel(potential_fn=lambda z: z**2, learn=walk)
    mcmc = MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(inv.InputError, match="init_params must be given with potential_fn"):
        mcmc.run(jr.key(0))


@pytest.mark.deep
def test_chains_run_in_parallel_on_two_devices():
    """In a process of its own: the number of devices is fixed when JAX starts."""
    code = """
        import jax; jax.config.update("jax_num_cpu_devices", 2)
        import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        from numpyro.infer import MCMC
        import involutive as inv
        def model(y):
            mu = numpyro.sample("mu", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        def learn(target, key): return inv.random_walk(target, 1.2)
        kernel = inv.interop.numpyro.InvolutiveKernel(model, learn=learn)
        mcmc = MCMC(kernel, num_warmup=100, num_samples=4000, num_chains=2, progress_bar=False)
        assert mcmc.chain_method == "parallel"
        mcmc.run(jax.random.key(0), jnp.array([1.0, 2.0, 3.0]))
        mu = mcmc.get_samples(group_by_chain=True)["mu"]
        assert mu.shape == (2, 4000) and abs(mu.mean() - 1.5) < 0.06, (mu.shape, mu.mean())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=300)


@pytest.mark.filterwarnings("ignore:Continuous inference poorly handles circular")
def test_an_angle_has_figures_of_a_circle():
    """The mode lies across the seam at π, where a plain mean would be about 0."""

    def model():
        with numpyro.plate("axis", 2):
            numpyro.sample("phi", dist.VonMises(3.1, 4.0))

    target = bridge.target(model)
    assert target.labels.periods == {"phi": (-np.pi, np.pi)}
    start = np.where(np.arange(8) % 2, 4.0, -4.0)[:, None] * np.ones(2)  # both sides of the seam
    draws = inv.sample(
        inv.random_walk(target, 0.3), key=0, num_chains=8, num_samples=50, initial=start
    )
    table = draws.summary().table
    for name in ("phi[0]", "phi[1]"):
        assert abs(table.loc[name, "mean"]) > 2.5 and table.loc[name, "sd"] < 1
