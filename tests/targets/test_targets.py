"""Targets: densities that agree with their exact draws, and words for densities that do not fit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import involutive as inv
from involutive import targets

N = 200_000

TARGETS = {
    "gaussian": lambda: targets.gaussian(3),
    "correlated_gaussian": lambda: targets.correlated_gaussian(4, 100.0),
    "mog2_1d": targets.mog2_1d,
    "mog2": targets.mog2,
    "mog6": targets.mog6,
    "ring": targets.ring,
    "ring5": targets.ring5,
    "funnel": lambda: targets.funnel(3),
    "two_modes": lambda: targets.two_modes(3, 4.0),
    "eight_modes": lambda: targets.eight_modes(4),
    "mixture": lambda: targets.mixture([[0.0, 1.0], [2.0, -1.0]], [1, 3], sd=0.7),
}
table = pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS)


def cauchy(y):
    return 1 / (1 + y**2)


@jax.jit
def stein(y, slope):
    """z-scores of E[∇log p · h + ∇·h] for four h, `(4, dim)`."""
    rows = []
    for h in (jnp.tanh, jnp.sin, jnp.cos, cauchy):
        values = slope * h(y) + jax.vmap(jax.vmap(jax.grad(h)))(y)
        rows.append(jnp.mean(values, axis=0) / (jnp.std(values, axis=0) / np.sqrt(N)))
    return jnp.stack(rows)


@table
def test_density_and_draws_are_of_one_law(make, getkey):
    """Stein: E[∇log p · h + ∇·h] = 0 for exact draws, here with h = x sin, cos and 1.

    It holds for the density the draws come from, whatever its constant, and for no other.
    """
    target = make()
    x = target.sample(getkey(), N)
    assert x.shape == (N, target.dim) and bool(jnp.all(jnp.isfinite(x)))
    gradient = jax.jit(jax.vmap(jax.grad(target.log_density)))(x)
    scale = np.std(x, axis=0)
    y, slope = x / scale[None], gradient * scale[None]
    assert np.abs(stein(y, slope)).max() < 4.5


@table
def test_gradient_is_finite_far_and_near(make, getkey):
    """Also at the origin, far out, and in float32, where a naive mixture underflows."""
    target = make()
    x = jnp.concatenate([jnp.zeros((1, target.dim)), 10.0 * jr.normal(getkey(), (500, target.dim))])
    both = jax.jit(jax.vmap(jax.value_and_grad(target.log_density)))
    for dtype in (jnp.float64, jnp.float32):
        value, gradient = both(x.astype(dtype))
        assert value.dtype == gradient.dtype == dtype
        assert np.isfinite(value).all() and np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["mog2_1d", "mog2", "mog6", "ring5", "two_modes", "mixture"])
def test_mode_weights_are_those_of_the_draws(name, getkey):
    target = TARGETS[name]()
    weights = np.array(target.modes.weights)
    label = np.asarray(jax.jit(jax.vmap(target.modes.label))(target.sample(getkey(), N)))
    counts = np.bincount(label, minlength=len(weights))
    assert weights.sum() == pytest.approx(1)
    if name in ("two_modes", "mixture"):  # nearest-centre cells overlap the components a little
        np.testing.assert_allclose(counts / N, weights, atol=0.05)
    else:
        assert scipy.stats.chisquare(counts, N * weights).pvalue > 1e-4


def test_moments_are_the_published_ones(getkey):
    """Per coordinate sd 1.4560 for ring, 3.5707 for mog6; radius of ring5 3.673 ± 1.252."""
    ring, mog6 = targets.ring().sample(getkey(), N), targets.mog6().sample(getkey(), N)
    np.testing.assert_allclose(jnp.std(ring, axis=0), 1.4560, atol=0.01)
    np.testing.assert_allclose(jnp.std(mog6, axis=0), 3.5707, atol=0.02)
    radius = jnp.linalg.norm(targets.ring5().sample(getkey(), N), axis=1)
    assert float(radius.mean()) == pytest.approx(3.673, abs=0.01)
    assert float(radius.std()) == pytest.approx(1.252, abs=0.01)


def test_the_formulas_are_the_stated_ones():
    x = jnp.array([0.3, -0.4])
    assert float(targets.ring().log_density(x)) == pytest.approx(-(((0.5 - 2) / 0.4) ** 2))
    assert float(targets.ring5().log_density(3 * x)) == pytest.approx(-((0.5 / 0.2) ** 2))
    at_mode = targets.mog6().log_density(jnp.array([5.0, 0.0]))
    assert float(at_mode) == pytest.approx(-np.log(6), abs=1e-6)
    assert float(targets.gaussian(2).log_density(x)) == pytest.approx(-0.125)
    neck = targets.funnel(2).log_density(jnp.array([2.0, 1.0]))
    assert float(neck) == pytest.approx(-0.5 * (4 / 9 + np.exp(-2) + 2))
    left, right = targets.mog2_1d().sample(jr.key(0), 1000).min(), 0.5
    assert float(left) < -0.5 and right == 0.5


def test_weights_of_a_mixture_are_its_peaks():
    target = targets.two_modes(4, 10.0, weights=(0.2, 0.8))
    half = jnp.full(4, 2.5)
    gap = target.log_density(half) - target.log_density(-half)
    assert float(gap) == pytest.approx(np.log(4), abs=1e-6)


# ── positions of any shape ──────────────────────────────────────────────────────────────────────


def test_density_of_a_pytree():
    like = {"mean": np.zeros(2), "scale": 1.0}
    target = inv.Target(lambda p: -jnp.sum(p["mean"] ** 2) - (p["scale"] - 2.0) ** 2, like=like)
    assert target.dim == 3
    flat = target.flatten({"mean": [1.0, 2.0], "scale": 3.0})
    assert flat.tolist() == [1, 2, 3] and float(target.log_density(flat)) == -6
    named = target.constrain(flat)
    assert named["mean"].tolist() == [1, 2] and float(named["scale"]) == 3
    nested = inv.Target(lambda p: p["a"]["b"] * 1.0, like={"a": {"b": 0}})
    assert list(nested.constrain(jnp.ones(1))) == ["a.b"]
    kernel = inv.random_walk(target, 0.5)
    state = kernel.init({"mean": [0.0, 0.0], "scale": 2.0})
    assert float(state.log_density) == 0
    assert inv.sample(kernel, key=0, num_chains=2, num_samples=3).positions.shape == (2, 3, 3)


def test_a_plain_density_is_called_x():
    target = inv.Target(lambda x: -jnp.sum(x**2), 2)
    assert list(target.constrain(jnp.zeros(2))) == ["x"] and target.name == "lambda"


# ── words for every density that does not fit ───────────────────────────────────────────────────


def raising(x):
    raise RuntimeError("no data loaded\nsecond line")


def numpy_only(x):
    return float(np.sum(np.asarray(x) ** 2))


BAD = {
    "no function": (lambda: inv.Target(3.0, 2), "a function of one vector, got float"),
    "no dim": (lambda: inv.Target(jnp.sum), "dim must be given .or like=, .*, got neither"),
    "dim 0": (lambda: inv.Target(jnp.sum, 0), "dim must be at least 1, got 0"),
    "dim -1": (lambda: inv.Target(jnp.sum, -1), "dim must be at least 1, got -1"),
    "dim 2.5": (lambda: inv.Target(jnp.sum, 2.5), "dim must be a whole number, got 2.5"),
    "dim True": (lambda: inv.Target(jnp.sum, True), "dim must be a whole number, got True"),
    "a vector out": (
        lambda: inv.Target(lambda x: -(x**2), 2),
        r"must return a scalar, got shape \(2,\); return one real number, .* jnp.sum",
    ),
    "one in brackets": (
        lambda: inv.Target(lambda x: x[:1], 2),
        r"must return a scalar, got shape \(1,\)",
    ),
    "complex out": (
        lambda: inv.Target(lambda x: jnp.sum(x) * 1j, 2),
        "must return a real float, got dtype complex128",
    ),
    "an int out": (lambda: inv.Target(lambda x: 3, 2), "log_density must return"),
    "nothing out": (lambda: inv.Target(lambda x: None, 2), "must return one scalar, got NoneType"),
    "two out": (
        lambda: inv.Target(lambda x: (x[0], x[1]), 2),
        "must return one scalar, got tuple of 2 arrays",
    ),
    "raising": (
        lambda: inv.Target(raising, 2),
        "with JAX operations, but it raised RuntimeError: no data loaded$",
    ),
    "NumPy only": (
        lambda: inv.Target(numpy_only, 2),
        "with JAX operations, but it raised TracerArrayConversionError",
    ),
    "index too far": (
        lambda: inv.Target(lambda x: x @ jnp.ones(3), 2),
        r"one vector of shape \(2,\) to a scalar with JAX operations, but it raised TypeError",
    ),
    "dim against like": (
        lambda: inv.Target(jnp.sum, 3, like=np.zeros(2)),
        "dim must match like, which holds 2 numbers, got dim=3; drop dim",
    ),
    "empty like": (lambda: inv.Target(jnp.sum, like=[]), "like must hold at least one number"),
    "mixture weights": (
        lambda: targets.mixture([[0.0], [1.0]], [1.0]),
        "weights must be 2 positive numbers",
    ),
    "negative weight": (
        lambda: targets.mixture([[0.0], [1.0]], [1.0, -1.0]),
        "weights must be 2 positive numbers",
    ),
    "funnel of 1": (lambda: targets.funnel(1), "dim of a funnel must be at least 2, got 1"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_density_is_named(build, words):
    with pytest.raises(inv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
