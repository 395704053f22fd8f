"""Black boxes: NumPy densities, called as they are, and named where they fail."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.targets.fingerprint import check_density

LOCK = threading.Lock()  # cannot be pickled, copied or traced


def log_prob(theta):
    """As emcee has it: one NumPy vector in, one float out."""
    with LOCK:
        assert type(theta) is np.ndarray
        return -0.5 * float(theta @ theta)


def in_jax(x):
    return -0.5 * jnp.sum(x**2)


def run(target, **options):
    sizes = {"num_chains": 5, "num_samples": 20, "key": 3} | options
    return inv.sample(inv.random_walk(target, 0.8), **sizes)


def test_the_same_draws_as_in_jax():
    box = inv.Target(log_prob, dim=2, backend="numpy")
    draws, same = run(box), run(inv.Target(in_jax, dim=2), block=5)
    np.testing.assert_allclose(draws.positions, same.positions, rtol=1e-12)
    assert not box.has_gradient and inv.Target(in_jax, 2).has_gradient
    # every chain once a step, at its start, and twice before
    assert box.black_box.calls == 5 * 20 + 5
    assert box.black_box.seconds < 0.1


def test_rows_are_called_for_alone():
    calls = []

    def counted(x):
        calls.append(x)
        return -float(x[0])

    target = inv.Target(counted, dim=1, backend="numpy")
    np.testing.assert_array_equal(
        target.evaluate_rows(np.array([[1.0], [2.0], [3.0]])), [-1, -2, -3]
    )
    assert len(calls) == 3
    np.testing.assert_allclose(inv.Target(in_jax, 2).evaluate_rows(np.ones((3, 2))), -1)


def test_vectorised_and_declared():
    """By name, as a dict, in rows: the values of the same density in JAX."""
    parameters = inv.Parameters(s=inv.Gamma(2, 1), w=inv.simplex(3))
    jax_target = inv.Target(lambda s, w: jnp.log(s) + jnp.sum(w**2), parameters)

    def by_name(s, w):
        return float(np.log(s) + np.sum(w**2))

    def as_dict(p):
        return float(np.log(p["s"]) + np.sum(p["w"] ** 2))

    def rows(s, w):
        return np.log(s) + np.sum(w**2, axis=-1)

    x = np.random.default_rng(0).normal(size=(7, parameters.dim))
    expected = jax_target.evaluate_rows(x)
    for function, many in ((by_name, False), (as_dict, False), (rows, True)):
        target = inv.Target(function, parameters, backend="numpy", vectorized=many)
        np.testing.assert_allclose(target.evaluate_rows(x), expected, rtol=1e-12)
        np.testing.assert_allclose(jax.vmap(target.log_density)(x), expected, rtol=1e-12)
        assert target.prior is None and target.initial is not None


def test_a_gradient_of_its_own():
    """Value, gradient and curvature through the map of the parameters."""
    parameters = inv.Parameters(m=inv.real(), s=inv.positive())

    def value(m, s):
        return float(-((m - s) ** 2))

    def both(m, s):
        return value(m, s), {"m": -2 * (m - s), "s": 2 * (m - s)}

    box = inv.Target(value, parameters, backend="numpy", value_and_grad=both)
    same = inv.Target(lambda m, s: -((m - s) ** 2), parameters)
    x = jnp.array([0.3, -0.4])
    assert box.has_gradient
    for view in (lambda f: f, jax.grad, jax.hessian):
        np.testing.assert_allclose(
            jax.jit(view(box.log_density))(x), view(same.log_density)(x), rtol=1e-6
        )
    start = np.zeros((2, 2))
    draws = inv.sample(inv.hmc(box, 0.1, 3), key=0, num_chains=2, num_samples=4, initial=start)
    assert draws.accepted.any()


def test_a_call_that_fails_is_named_and_nothing_is_lost():
    def fragile(a, b):
        if a > 1.0:
            raise ValueError("the solver\ndid not converge")
        return np.nan if b > 1.5 else -0.5 * (a**2 + b**2)

    parameters = inv.Parameters(a=inv.real(), b=inv.real())
    target = inv.Target(fragile, parameters, backend="numpy")
    start = np.zeros((5, 2))
    with pytest.warns(UserWarning, match=r"fragile gave no number at a = .*, b = .*NaN") as caught:
        draws = run(target, num_samples=60, initial=start)
    assert draws.positions.shape == (5, 60, 2) and (draws.positions[..., 0] <= 1).all()
    assert draws.nonfinite.sum() == target.black_box.failed > 3 == len(caught)
    words = {failure.words for failure in target.black_box.failures}
    assert words == {"raised ValueError: the solver", "returned nan"}
    assert all(set(f.parameters) == {"a", "b"} for f in target.black_box.failures)


def test_a_vectorised_call_that_fails_costs_its_row():
    def rows(x):
        if (x[:, 0] > 1).any():
            raise ValueError("no")
        return -x[:, 0]

    target = inv.Target(rows, dim=1, backend="numpy", vectorized=True)
    with pytest.warns(UserWarning, match=r"x\[0\] = 2: it raised ValueError: no"):
        values = target.evaluate_rows(np.array([[0.0], [2.0], [0.5]]))
    np.testing.assert_array_equal(values, [0, np.nan, -0.5])


def test_a_vectorised_function_that_gives_no_number_is_named():
    def rows(x):
        return np.where(x[:, 0] > 1, np.nan, -x[:, 0])

    target = inv.Target(rows, dim=1, backend="numpy", vectorized=True)
    with pytest.warns(UserWarning, match=r"x\[0\] = 2: it returned nan"):
        values = target.evaluate_rows(np.array([[0.0], [2.0], [0.5]]))
    np.testing.assert_array_equal(values, [0, np.nan, -0.5])
    complex_rows = inv.Target(lambda x: 1j * x[:, 0], dim=1, backend="numpy", vectorized=True)
    with pytest.raises(inv.InputError, match="it must return real numbers, got dtype complex"):
        check_density(complex_rows)


def test_a_value_below_what_32_bits_hold_is_outside():
    target = inv.Target(lambda x: -1e300, dim=1, backend="numpy")
    assert target.evaluate_rows(np.zeros((2, 1))).max() < -1e38  # and no warning


GRADIENTS = {
    "no pair": (lambda x: 0.0, "raised TypeError: cannot unpack"),
    "too short": (lambda x: (-np.sum(x**2), 0.0), "its gradient must hold 2 numbers, got 1"),
    "another value": (lambda x: (1 - np.sum(x**2), -2 * x), "where the log density is -"),
}


@pytest.mark.parametrize(("both", "words"), GRADIENTS.values(), ids=GRADIENTS)
def test_a_bad_gradient_is_named_before_work(both, words):
    target = inv.Target(lambda x: -np.sum(x**2), dim=2, backend="numpy", value_and_grad=both)
    with pytest.raises(inv.InputError, match=f"value_and_grad of lambda must return .*{words}"):
        check_density(target)


def random(x):
    return float(RANDOM.normal())


RANDOM = np.random.default_rng(0)
BEFORE_WORK = {
    "random": (random, r"same value at the same position, got .* and then .* at x\[0\] = .*; take"),
    "raising": (
        lambda x: [][1],
        r"must give a number .*, but at x\[0\] = .* it raised IndexError: list index",
    ),
    "a vector": (lambda x: x, r"at x\[0\] = .*it must return one number, got shape \(2,\)"),
    "nothing": (lambda x: None, "it must return one number, got None: end it with return"),
    "complex": (lambda x: 1j, "it must return a real number, got 1j"),
}


@pytest.mark.parametrize(("function", "words"), BEFORE_WORK.values(), ids=BEFORE_WORK)
def test_a_bad_function_is_named_before_work(function, words):
    target = inv.Target(function, dim=2, backend="numpy")
    with pytest.raises(inv.InputError, match=words) as error:
        check_density(target)
    assert "\n" not in str(error.value)


# ── prior transforms ────────────────────────────────────────────────────────────────────────────


def transform(u):
    return np.array([10 * u[0] - 5, 2 * np.pi * u[1]])


def log_likelihood(theta):
    return -0.5 * float((theta[0] - 1) ** 2) + float(np.cos(theta[1]))


def test_prior_transform_as_dynesty_has_it(getkey):
    target = inv.Target.from_prior_transform(
        log_likelihood, transform, 2, names=["x", "phase"], periodic=[1]
    )
    assert target.dim == 3 and target.labels.periods == {"phase": (0.0, 2 * np.pi)}
    z = target.initial.sample(getkey(), (400,))
    values = jax.jit(jax.vmap(target.constrain))(z)
    assert list(target.constrain(z[0])) == ["x", "phase"]
    x = np.asarray(values["x"])
    assert x.min() < -4.5 and x.max() > 4.5 and abs(x.mean()) < 0.6
    expected = [log_likelihood(np.array(t)) for t in zip(values["x"], values["phase"], strict=True)]
    found = target.evaluate_rows(np.asarray(z)) - np.asarray(target.prior.log_prob(z))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_prior_transform_in_jax_and_in_rows(getkey):
    in_rows = inv.Target.from_prior_transform(
        lambda t: -0.5 * np.sum(t**2, axis=1), lambda u: 4 * u - 2, 2, vectorized=True
    )
    in_jax = inv.Target.from_prior_transform(
        lambda t: -0.5 * jnp.sum(t**2), lambda u: 4 * u - 2, 2, backend="jax"
    )
    z = in_jax.initial.sample(getkey(), (5,))
    rows = np.asarray(z)
    np.testing.assert_allclose(in_rows.evaluate_rows(rows), in_jax.evaluate_rows(rows), rtol=1e-10)
    assert in_jax.has_gradient and list(in_jax.constrain(z[0])) == ["theta_0", "theta_1"]
    np.testing.assert_allclose(
        in_rows.constrain(z[0])["theta_1"], in_jax.constrain(z[0])["theta_1"]
    )


class Prior:
    """The shape of nautilus's prior."""

    def __init__(self):
        self.keys, self.dists = [], []

    def add_parameter(self, key, dist=(0, 1)):
        self.keys.append(key)
        self.dists.append(dist)


def test_a_prior_of_named_distributions_as_nautilus_has_it():
    import scipy.stats

    prior = Prior()
    prior.add_parameter("a", dist=(-5, 5))
    prior.add_parameter("b", dist=scipy.stats.norm(loc=0, scale=2.0))

    def likelihood(param_dict):
        return -0.5 * (param_dict["a"] - param_dict["b"]) ** 2

    target = inv.Target(likelihood, prior, backend="numpy")
    assert target.prior is not None and target.parameters.names == ("a", "b")
    value = target.log_density(target.flatten({"a": 1.0, "b": 2.0}))
    logs = -0.5 + scipy.stats.norm(0, 2).logpdf(2.0) - np.log(10)
    jacobian = target.parameters["a"].support.constrain(jnp.log(jnp.array([6.0 / 4.0])))[1]
    assert float(value) == pytest.approx(logs + float(jacobian))
    prior.add_parameter("c", dist="a")
    with pytest.raises(inv.InputError, match=r"\['c'\] are linked to others"):
        inv.Target(likelihood, prior, backend="numpy")


BAD = {
    "backend": (
        lambda: inv.Target(log_prob, 2, backend="torch"),
        "must be jax or numpy, got 'torch'",
    ),
    "executor": (
        lambda: inv.Target(in_jax, 2, executor=object()),
        "executor is for backend='numpy', got backend='jax'",
    ),
    "no pool": (
        lambda: inv.Target(log_prob, 2, backend="numpy", executor=object()),
        "executor must have submit, apply_async or map, .*, got object",
    ),
    "like": (
        lambda: inv.Target(log_prob, like=np.zeros(2), backend="numpy"),
        "like must be left out with backend='numpy'; declare parameters",
    ),
    "gradient": (
        lambda: inv.Target(log_prob, 2, backend="numpy", value_and_grad=3),
        "value_and_grad must be a function, got int",
    ),
    "names": (
        lambda: inv.Target.from_prior_transform(log_likelihood, transform, 2, names=["a"]),
        r"names must be 2 different ones, .*, got \['a'\]",
    ),
    "names as text": (
        lambda: inv.Target.from_prior_transform(log_likelihood, transform, 2, names="ab"),
        "names must be a list of names, one for each parameter, got the text 'ab'",
    ),
    "periodic": (
        lambda: inv.Target.from_prior_transform(log_likelihood, transform, 2, periodic=[2]),
        r"periodic must be indices of coordinates from 0 to 1, got \[2\]",
    ),
    "periodic marks": (
        lambda: inv.Target.from_prior_transform(
            log_likelihood, transform, 2, periodic=[False, True]
        ),
        r"must be indices of coordinates, got a list of truth values; pass periodic=\[1\]",
    ),
    "periodic names": (
        lambda: inv.Target.from_prior_transform(log_likelihood, transform, 2, periodic=["b"]),
        r"periodic must be indices of coordinates from 0 to 1, got \['b'\]",
    ),
    "both": (
        lambda: inv.Target.from_prior_transform(
            log_likelihood, transform, 2, periodic=[1], reflective=[1]
        ),
        r"must be periodic or reflective, got both for \[1\]",
    ),
    "transform": (
        lambda: inv.Target.from_prior_transform(log_likelihood, lambda u: u[7], 2),
        r"at \[0.5, 0.5\] it raised IndexError: index 7",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_named(build, words):
    with pytest.raises(inv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
