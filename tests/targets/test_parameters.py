"""Declared parameters: every support and every prior by the same laws."""

import flowjax.bijections
import flowjax.distributions
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import involutive as inv
from involutive.targets.supports import SHARP

N = 10_000

SUPPORTS = {
    "real": lambda: inv.real(),
    "real (2, 2)": lambda: inv.real(shape=(2, 2)),
    "positive": lambda: inv.positive(shape=2),
    "interval": lambda: inv.interval(-1, 4),
    "interval of arrays": lambda: inv.interval([0, 1], [1, 3]),
    "above": lambda: inv.interval(2, np.inf),
    "below": lambda: inv.interval(-np.inf, 2),
    "line": lambda: inv.interval(-np.inf, np.inf),
    "angle": lambda: inv.angle(),
    "angle 0 to 24": lambda: inv.angle(0, 24, shape=2),
    "simplex": lambda: inv.simplex(3),
    "simplex (2, 4)": lambda: inv.simplex(4, shape=2),
    "ordered": lambda: inv.ordered(4),
    "ordered (2, 3)": lambda: inv.ordered(3, shape=(2,)),
}
PRIORS = {
    "Normal": (lambda: inv.Normal(1, 2), scipy.stats.norm(1, 2)),
    "HalfNormal": (lambda: inv.HalfNormal(2), scipy.stats.halfnorm(0, 2)),
    "LogNormal": (lambda: inv.LogNormal(0.3, 0.5), scipy.stats.lognorm(0.5, 0, np.exp(0.3))),
    "Exponential": (lambda: inv.Exponential(2), scipy.stats.expon(0, 0.5)),
    "Gamma": (lambda: inv.Gamma(2.5, 3), scipy.stats.gamma(2.5, 0, 1 / 3)),
    "Beta": (lambda: inv.Beta(2, 3), scipy.stats.beta(2, 3)),
    "StudentT": (lambda: inv.StudentT(4, 1, 2), scipy.stats.t(4, 1, 2)),
    "Cauchy": (lambda: inv.Cauchy(1, 2), scipy.stats.cauchy(1, 2)),
    "HalfCauchy": (lambda: inv.HalfCauchy(2), scipy.stats.halfcauchy(0, 2)),
    "Uniform": (lambda: inv.Uniform(-1, 3), scipy.stats.uniform(-1, 4)),
    "VonMises": (lambda: inv.VonMises(0.5, 2), scipy.stats.vonmises(2, 0.5)),
    "flowjax Normal": (
        lambda: flowjax.distributions.Normal(1.0, 2.0),
        scipy.stats.norm(1, 2),
    ),
    "flowjax Gamma": (
        lambda: flowjax.distributions.Gamma(2.5, 1 / 3),
        scipy.stats.gamma(2.5, 0, 1 / 3),
    ),
    "flowjax Uniform": (
        lambda: flowjax.distributions.Uniform(-1.0, 3.0),
        scipy.stats.uniform(-1, 4),
    ),
    "flowjax Beta": (lambda: flowjax.distributions.Beta(2.0, 3.0), scipy.stats.beta(2, 3)),
    "scipy norm": (lambda: scipy.stats.norm(1, 2), scipy.stats.norm(1, 2)),
    "scipy lognorm": (lambda: scipy.stats.lognorm(0.5, scale=2), scipy.stats.lognorm(0.5, 0, 2)),
    "scipy gamma": (lambda: scipy.stats.gamma(2, scale=3), scipy.stats.gamma(2, 0, 3)),
    "a pair": (lambda: (-1, 3), scipy.stats.uniform(-1, 4)),
}
every_support = pytest.mark.parametrize("make", SUPPORTS.values(), ids=SUPPORTS)


def square(value, support, u):
    """The value and what is missing to make the map square: radii, but not the last of a stick."""
    if type(support).__name__ == "Simplex":
        return jnp.ravel(value[..., :-1])
    if support.period is not None:
        return jnp.concatenate([jnp.ravel(value), jnp.ravel(jnp.hypot(*u.reshape(2, -1)))])
    return jnp.ravel(value)


def radial(support, u):
    """log of the density of the radii of angles, r² ~ Gamma(SHARP + 1, SHARP)."""
    if support.period is None:
        return 0.0
    r = np.hypot(*np.asarray(u).reshape(2, -1))
    return np.sum(scipy.stats.gamma(SHARP + 1, scale=1 / SHARP).logpdf(r**2) + np.log(2 * r))


@every_support
def test_support_is_a_bijection_with_its_jacobian(make, getkey):
    support = make().support
    u = jr.normal(getkey(), (support.size,))
    value, log_det = support.constrain(u)
    assert value.shape == support.shape
    again, _ = support.constrain(support.unconstrain(value, getkey()))
    np.testing.assert_allclose(again, value, rtol=1e-10, atol=1e-12)
    jacobian = jax.jacfwd(lambda v: square(support.constrain(v)[0], support, v))(u)
    expected = np.linalg.slogdet(jacobian)[1] + radial(support, u)
    assert float(log_det) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@every_support
def test_support_holds_far_out(make, getkey):
    """Values stay inside, with finite densities and gradients."""
    support = make().support
    u = 8.0 * jr.normal(getkey(), (200, support.size))
    value, log_det = jax.vmap(support.constrain)(u)
    slopes = jax.vmap(jax.grad(lambda v: support.constrain(v)[1]))(u)
    assert np.isfinite(value).all() and np.isfinite(log_det).all() and np.isfinite(slopes).all()
    if type(support).__name__ == "Interval":
        ends = (support.low, support.high)
        low, high = (np.broadcast_to(np.asarray(end), value.shape) for end in ends)
        assert (low <= np.asarray(value)).all() and (np.asarray(value) <= high).all()
    if type(support).__name__ == "Ordered":
        assert (np.diff(value, axis=-1) >= 0).all()
    if type(support).__name__ == "Simplex":
        np.testing.assert_allclose(np.sum(value, axis=-1), 1, rtol=1e-12)


BOUNDS = {
    "interval": (-1, 4), "above": (2, np.inf), "below": (-np.inf, 2), "simplex": (0, 1),
    "positive": (0, np.inf),
}  # fmt: skip


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDS)
def test_rounding_never_reaches_a_bound(name, wide):
    """There the density of Beta(½, ½), or of a logarithm, is infinite."""
    low, high = BOUNDS[name]
    with jax.enable_x64(wide):
        support = SUPPORTS[name]().support
        ends = jnp.outer(jnp.array([-60.0, -20.0, 20.0, 60.0]), jnp.ones(support.size))
        value = np.asarray(jax.vmap(support.constrain)(ends)[0])
    assert value.dtype == (np.float64 if wide else np.float32)
    assert (low < value).all() and (value < high).all()


def drawn(law, key, count):
    """Draws of a distribution, compiled whole."""
    return jax.jit(lambda k: law.sample(k, (count,)))(key)


def stein(log_prob, x):
    """z-scores of E[∇log p · h + ∇·h] = 0 for draws of p, for four bounded h."""
    scale = np.std(x, axis=0)
    scale = np.where(np.isfinite(scale) & (scale < 1e3), scale, 1.0)
    slope = np.asarray(jax.jit(jax.vmap(jax.grad(log_prob)))(x)) * scale
    y, worst = np.asarray(x) / scale, 0.0
    tests = (
        (np.tanh(y), 1 - np.tanh(y) ** 2),
        (np.sin(y), np.cos(y)),
        (np.cos(y), -np.sin(y)),
        (1 / (1 + y**2), -2 * y / (1 + y**2) ** 2),
    )
    for h, slope_of_h in tests:
        values = slope * h + slope_of_h
        z = values.mean(axis=0) / (values.std(axis=0) / np.sqrt(len(values)))
        worst = max(worst, float(np.abs(z).max()))
    return worst


@pytest.mark.deep
def test_starts_and_their_densities_are_of_one_law(getkey):
    """All supports at once: one compilation."""
    parameters = inv.Parameters({name: make() for name, make in SUPPORTS.items()})
    assert not parameters.have_priors
    law = parameters.initial()
    draws = drawn(law, getkey(), N)
    assert stein(law.log_prob, draws) < 4.5


@pytest.mark.deep
def test_priors_and_their_densities_are_of_one_law(getkey):
    """Draws by a KS test on values, the density by Stein on coordinates, with its constant."""
    parameters = inv.Parameters({name: make() for name, (make, _) in PRIORS.items()})
    assert parameters.have_priors
    law = parameters.initial()
    draws = drawn(law, getkey(), N)
    assert stein(law.log_prob, draws) < 4.5
    values = jax.jit(jax.vmap(parameters.constrain))(draws)
    few = {name: value[:50] for name, value in values.items()}
    each = {name: parameters[name].log_prob for name in PRIORS}
    found = jax.jit(lambda few: {n: jax.vmap(each[n])(few[n]) for n in each})(few)  # all at once
    for name, (_, exact) in PRIORS.items():
        turned = values[name]
        if name == "VonMises":
            turned = on_circle(turned, 0.5)
        assert scipy.stats.kstest(turned, exact.cdf).pvalue > 1e-4, name
        np.testing.assert_allclose(found[name], exact.logpdf(few[name]), rtol=1e-6, atol=1e-6)


def on_circle(values, centre):
    """Angles within half a turn of a centre, as SciPy's distribution function has them."""
    return centre + np.mod(np.asarray(values) - centre + np.pi, 2 * np.pi) - np.pi


def test_a_wrong_jacobian_is_caught(getkey):
    """The law above sees a density without its log-Jacobian."""
    parameters = inv.Parameters(x=inv.Gamma(2.5, 3))
    draws = drawn(parameters.initial(), getkey(), N)
    entry = parameters["x"]
    assert stein(lambda u: entry.log_prob(entry.support.constrain(u)[0]), draws) > 10


def test_priors_of_arrays_and_of_vectors(getkey):
    parameters = inv.Parameters(
        mu=inv.Normal([0.0, 10.0], [1.0, 2.0]),
        tau=inv.HalfNormal(shape=(3,), dims="school"),
        w=inv.Dirichlet([1.0, 2.0, 3.0], shape=2),
    )
    assert parameters.dim == 2 + 3 + 4
    law = parameters.initial()
    draws = drawn(law, getkey(), N)
    values = jax.jit(jax.vmap(parameters.constrain))(draws)
    np.testing.assert_allclose(np.mean(values["mu"], 0), [0, 10], atol=0.1)
    np.testing.assert_allclose(np.mean(values["w"], 0), [[1 / 6, 1 / 3, 1 / 2]] * 2, atol=0.012)
    assert stein(law.log_prob, draws) < 4.5
    weights = np.asarray(values["w"][:20, 0])
    exact = [scipy.stats.dirichlet([1, 2, 3]).logpdf(w / w.sum()) for w in weights]
    entry = inv.Dirichlet([1.0, 2.0, 3.0])
    np.testing.assert_allclose([entry.log_prob(jnp.asarray(w)) for w in weights], exact, rtol=1e-9)


@pytest.mark.usefixtures("foreign_keys")
def test_numpyro_distributions_are_taken(getkey):
    import numpyro.distributions as dist

    parameters = inv.Parameters(
        mu=dist.Normal(1.0, 2.0), tau=dist.HalfCauchy(2.0), p=dist.Uniform(-1.0, 3.0),
        w=dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])), phi=dist.VonMises(0.5, 2.0),
    )  # fmt: skip
    assert parameters.dim == 7 and list(parameters.periods) == ["phi"]
    law = parameters.initial()
    draws = drawn(law, getkey(), N)
    assert stein(law.log_prob, draws) < 4.5
    values = jax.jit(jax.vmap(parameters.constrain))(draws)
    assert scipy.stats.kstest(values["tau"], scipy.stats.halfcauchy(0, 2).cdf).pvalue > 1e-4
    turned = on_circle(values["phi"], 0.5)
    assert scipy.stats.kstest(turned, scipy.stats.vonmises(2, 0.5).cdf).pvalue > 1e-4
    with pytest.raises(inv.InputError, match="must be continuous, but Poisson is discrete"):
        inv.Parameters(k=dist.Poisson(3.0))


def test_a_flow_is_a_prior(getkey):
    """A transformed FlowJAX distribution keeps its bijection."""
    bend = flowjax.bijections.Chain(
        [flowjax.bijections.Tanh((2,)), flowjax.bijections.Loc(jnp.ones(2))]
    )
    flow = flowjax.distributions.Transformed(flowjax.distributions.StandardNormal((2,)), bend)
    parameters = inv.Parameters(x=flow)
    law = parameters.initial()
    draws = drawn(law, getkey(), 2000)
    np.testing.assert_allclose(
        law.log_prob(draws), scipy.stats.norm.logpdf(draws).sum(axis=1), rtol=1e-6, atol=1e-6
    )


def test_other_scipy_families_go_by_quantiles(getkey):
    exact = scipy.stats.triang(0.3, 1, 2)
    parameters = inv.Parameters(x=exact)
    draws = drawn(parameters.initial(), getkey(), 2000)
    values = jax.jit(jax.vmap(parameters.constrain))(draws)["x"]
    assert scipy.stats.kstest(values, exact.cdf).pvalue > 1e-4


# ── targets of declared parameters ──────────────────────────────────────────────────────────────


def likelihood(mu, sigma):
    return jnp.sum(jax.scipy.stats.norm.logpdf(jnp.array([1.0, 2.0, 4.0]), mu, sigma))


def test_prior_plus_likelihood():
    parameters = inv.Parameters(mu=inv.Normal(0, 5), sigma=inv.HalfNormal(2))
    target = inv.Target(likelihood, parameters)
    x = jnp.array([0.3, -0.2])
    sigma = np.exp(-0.2)
    exact = (
        scipy.stats.norm(0.3, sigma).logpdf([1, 2, 4]).sum()
        + scipy.stats.norm(0, 5).logpdf(0.3)
        + scipy.stats.halfnorm(0, 2).logpdf(sigma)
        - 0.2
    )
    assert float(target.log_density(x)) == pytest.approx(exact)
    assert target.name == "likelihood" and target.prior is target.initial
    gap = target.log_density(x) - target.initial.log_prob(x)
    assert float(gap) == pytest.approx(float(likelihood(0.3, sigma)))
    np.testing.assert_allclose(target.flatten({"mu": 0.3, "sigma": sigma}), x)
    assert inv.Target(likelihood, inv.Parameters(mu=inv.real(), sigma=inv.positive())).prior is None


def test_values_as_a_dict_and_as_a_vector():
    parameters = inv.Parameters(mu=inv.Normal(0, 5), sigma=inv.HalfNormal(2))
    x = jnp.array([0.3, -0.2])
    by_name = inv.Target(likelihood, parameters).log_density(x)
    as_dict = inv.Target(lambda p: likelihood(p["mu"], p["sigma"]), parameters).log_density(x)
    as_vector = inv.Target(lambda t: likelihood(t[0], t[1]), parameters, arguments="vector")
    assert float(by_name) == float(as_dict) == float(as_vector.log_density(x))


@pytest.mark.deep
def test_moves_keep_declared_distributions(getkey):
    """Exact draws in, steps of a plain kernel, the same values out; and it moves."""
    parameters = inv.Parameters(
        s=inv.positive(), p=inv.interval(0, 1), phi=inv.angle(), w=inv.simplex(3)
    )

    def log_density(s, p, phi, w):
        return 1.5 * jnp.log(s) - 3 * s + jnp.log(p) + 2 * jnp.cos(phi - 3) + jnp.log(w[2])

    priors = inv.Parameters(
        s=inv.Gamma(2.5, 3), p=inv.Beta(2, 1), phi=inv.VonMises(3, 2), w=inv.Dirichlet([1, 1, 2])
    )
    start = np.asarray(drawn(priors.initial(), getkey(), 4000))
    target = inv.Target(log_density, parameters)
    draws = inv.sample(
        inv.random_walk(target, 0.7), key=3, num_chains=4000, num_samples=1, num_warmup=6,
        initial=start, progress=False,
    )  # fmt: skip
    assert np.mean(np.any(draws.positions[:, 0] != start, axis=1)) > 0.6
    values = jax.jit(jax.vmap(parameters.constrain))(draws.positions[:, 0])
    exact = {
        "s": scipy.stats.gamma(2.5, 0, 1 / 3), "p": scipy.stats.beta(2, 1),
        "phi": scipy.stats.vonmises(2, 3),
    }  # fmt: skip
    for name, law in exact.items():
        turned = on_circle(values[name], 3) if name == "phi" else values[name]
        assert scipy.stats.kstest(turned, law.cdf).pvalue > 1e-3
    assert scipy.stats.kstest(values["w"][:, 2], scipy.stats.beta(2, 2).cdf).pvalue > 1e-3


def test_results_are_as_declared(tmp_path):
    """Names, order, dims and coords, in the summary, in ArviZ, and read back from a file."""
    parameters = inv.Parameters(
        z=inv.real(shape=2, dims="school"), a=inv.positive(), phi=inv.angle(),
        coords={"school": ["A", "B"]},
    )  # fmt: skip

    def log_density(z, a, phi):
        return -jnp.sum(z**2) - a + jnp.cos(phi)

    target = inv.Target(log_density, parameters)
    draws = inv.sample(inv.random_walk(target, 0.5), key=0, num_chains=4, num_samples=40)
    summary = draws.summary()
    assert list(summary.table.index) == ["z[A]", "z[B]", "a", "phi", "|x|²"]
    posterior = draws.to_arviz()["posterior"]
    assert list(posterior.data_vars) == ["z", "a", "phi"]
    assert posterior["z"].dims == ("chain", "draw", "school")
    assert posterior["school"].values.tolist() == ["A", "B"]
    assert "flat" not in str(summary)


def test_a_kernel_that_starts_from_the_prior_is_saved(tmp_path):
    target = inv.Target(likelihood, inv.Parameters(mu=inv.Normal(0, 5), sigma=inv.HalfNormal(2)))
    kernel = inv.random_walk(target, 0.5, target.initial)
    inv.save(tmp_path / "k.inv", kernel)
    again = inv.load(tmp_path / "k.inv", target)
    one, two = (inv.sample(k, key=0, num_chains=2, num_samples=5) for k in (kernel, again))
    assert np.array_equal(one.positions, two.positions)


def test_chains_start_from_the_prior():
    target = inv.Target(lambda mu: 0.0 * mu, inv.Parameters(mu=inv.Normal(50, 1)))
    draws = inv.sample(inv.random_walk(target, 0.1), key=0, num_chains=8, num_samples=1)
    assert np.abs(draws.positions - 50).max() < 6


# ── words ───────────────────────────────────────────────────────────────────────────────────────

BAD = {
    "nothing": (lambda: inv.Parameters(), "must declare at least one parameter, got none"),
    "a number": (
        lambda: inv.Parameters(a=3.0),
        r"a must be declared by a support .inv.real, .* SciPy distribution, got float",
    ),
    "a function": (lambda: inv.Parameters(a=inv.real), r"got function; call it: inv.real\("),
    "reserved name": (lambda: inv.Parameters(lp=inv.real()), "must differ from .*, got lp; rename"),
    "reserved leaf": (lambda: inv.Target(jnp.sum, like={"draw": 0.0}), "got draw; rename"),
    "reserved axis": (
        lambda: inv.Parameters(a=inv.real(shape=2, dims="chain")),
        "must differ from chain, draw, lp, .*, got chain",
    ),
    "an axis as a parameter": (
        lambda: inv.Parameters(a=inv.real(shape=2, dims="a")),
        "an axis must not have the name of a parameter, got a",
    ),
    "two sizes of an axis": (
        lambda: inv.Parameters(a=inv.real(shape=3, dims="k"), b=inv.real(shape=2, dims="k")),
        "every axis called k must have one size, got 3 and, for b, 2",
    ),
    "a vector of a dict": (
        lambda: inv.Target(lambda x: x[0] + x[1], inv.Parameters(a=inv.real(), b=inv.real())),
        "must map the declared parameters, as one dict .arguments='vector' .* raised KeyError: 0",
    ),
    "unused": (
        lambda: inv.Target(
            lambda a, b: -(a[1] ** 2), inv.Parameters(a=inv.real(shape=2), b=inv.real())
        ),
        r"ignores a\[0\], b of 3; give them a prior term",
    ),
    "bounds": (
        lambda: inv.interval(1, 0),
        "low of an interval must be below high, got low=1 and high=0",
    ),
    "bound of words": (lambda: inv.interval("a", 0), "low must be a number or an array, got 'a'"),
    "mixed bounds": (
        lambda: inv.interval([0, 0], [1, np.inf]),
        r"an infinite bound must be one number, got bounds of shapes \(2,\) and \(2,\)",
    ),
    "angle": (lambda: inv.angle(0, np.inf), "the ends of an angle must be finite"),
    "simplex": (lambda: inv.simplex(1), "count of a simplex must be at least 2, got 1"),
    "ordered": (lambda: inv.ordered(1), "count of ordered numbers must be at least 2, got 1"),
    "dims": (
        lambda: inv.real(dims="school"),
        r"dims must name each of the 0 axes of shape \(\), got \('school',\)",
    ),
    "shape": (lambda: inv.real(shape=0), "every size of shape must be at least 1, got 0"),
    "scale": (lambda: inv.Normal(0, -1), "scale of Normal must be positive, got -1"),
    "loc": (lambda: inv.Normal("x"), "loc of Normal must be a number, got 'x'"),
    "infinite": (lambda: inv.Uniform(0, np.inf), "high of Uniform must be finite, got inf"),
    "uniform": (lambda: inv.Uniform(1, 0), "low of Uniform must be below high"),
    "dirichlet": (lambda: inv.Dirichlet(1.0), "concentration of Dirichlet must be a vector"),
    "prior's shape": (
        lambda: inv.Normal([0.0, 1.0], shape=3),
        r"shape of Normal must end in the shape of its parameters \(2,\), got \(3,\)",
    ),
    "coords": (
        lambda: inv.Parameters(a=inv.real(shape=2, dims="s"), coords={"s": ["x"]}),
        "coords of s must have 2 places, one along its axis, got 1",
    ),
    "arguments": (
        lambda: inv.Target(lambda a, c: a, inv.Parameters(a=inv.real(), b=inv.real())),
        "must take the declared parameters a, b by name, but it takes a, c; name its arguments",
    ),
    "kind of arguments": (
        lambda: inv.Target(lambda a: a, inv.Parameters(a=inv.real()), arguments="list"),
        "arguments must be one of names, dict, vector, got 'list'",
    ),
    "like": (
        lambda: inv.Target(lambda a: a, inv.Parameters(a=inv.real()), like=1.0),
        "like must be left out where parameters are declared, got both",
    ),
    "values": (
        lambda: inv.Parameters(a=inv.real()).unconstrain({"b": 1.0}),
        "values must be of a, got b",
    ),
    "value's shape": (
        lambda: inv.Parameters(a=inv.real()).unconstrain({"a": [1.0]}),
        r"a must have shape \(\), got \(1,\)",
    ),
    "a vector out": (
        lambda: inv.Target(lambda a: a, inv.Parameters(a=inv.real(shape=2))),
        r"must return a scalar, got shape \(2,\)",
    ),
}


def test_numpyro_distributions_without_density_draws_or_map_are_refused():
    laws = pytest.importorskip("numpyro.distributions")
    refused = {
        "must have a density, but Delta is one value": laws.Delta(1.0),
        "must be a distribution to draw from, but ImproperUniform is not; declare the support": (
            laws.ImproperUniform(laws.constraints.positive, (), ())
        ),
        "support that NumPyro maps to the real line, but that of ProjectedNormal": (
            laws.ProjectedNormal(jnp.ones(2))
        ),
    }
    for words, law in refused.items():
        with pytest.raises(inv.InputError, match=words):
            inv.Parameters(a=law)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_declaration_is_named(build, words):
    with pytest.raises(inv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
