"""Half-defined models are named before any work starts, and sound ones never are."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive._xla.reading import PERHAPS, READ, UNREAD, reading_of
from involutive.targets import validation

WEIGHTS = jnp.array([1.0, 1.0, 0.0])
BOTH = jnp.array([0, 1])


def two_of_three(x):
    return -0.5 * (x[0] ** 2 + x[1] ** 2)


def unpacked(x):
    a, b, _ = x
    return -0.5 * (a**2 + b**2)


def inner(x):
    return jax.jit(lambda y: jax.scipy.stats.norm.logpdf(y[:2]).sum())(x)


IGNORES = {
    "by index": two_of_three,
    "unpacked": unpacked,
    "inside jit": inner,
    "by slice": lambda x: -jnp.sum(x[:2] ** 2),
    "by stride": lambda x: -jnp.sum(x[::2] ** 2) - 0 * x[1],
    "by gather": lambda x: -jnp.sum(x[BOTH] ** 2),
    "weight zero": lambda x: -jnp.sum(WEIGHTS * x**2),
    "reshaped": lambda x: -jnp.sum(x.reshape(3, 1)[1:] ** 2),
    "all of them": lambda x: jnp.zeros(()),
    "joined": lambda x: -jnp.sum(jnp.concatenate([x, x])[:2] ** 2),
    "branches": lambda x: -(jnp.where(x[0] > 0, x[1], -x[1]) ** 2),
}


@pytest.mark.parametrize("density", IGNORES.values(), ids=IGNORES)
def test_a_coordinate_that_nothing_reads_is_improper(density):
    with pytest.raises(inv.InputError, match=r"must depend on every coordinate.* ignores .*x\["):
        inv.Target(density, dim=3)


def test_the_coordinate_has_the_name_that_the_user_gave():
    like = {"slope": jnp.zeros(2), "level": 0.0}
    with pytest.raises(inv.InputError, match=r"ignores slope\[1\] of 3; give it a prior"):
        inv.Target(lambda p: -(p["level"] ** 2) - p["slope"][0] ** 2, like=like)


def scanned(x):
    return jax.lax.scan(lambda total, value: (total - value**2, None), 0.0, x)[0]


def ignored_in_a_scan(x):
    return jax.lax.scan(lambda total, _: (total - jnp.sum(x[:2] ** 2), None), 0.0, None, 3)[0]


@jax.custom_vjp
def custom(x):
    return -jnp.sum(x**2)


custom.defvjp(lambda x: (custom(x), x), lambda x, g: (-2 * x * g,))


def called_back(x):
    shape = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(lambda y: -np.sum(np.asarray(y) ** 2), shape, x)


def dynamic(x):
    """One coordinate at a time, by an index that only the position decides."""
    return -(x[jnp.argmax(jnp.abs(x))] ** 2)


def conditional(x):
    return jax.lax.cond(x[0] > 0, lambda y: -jnp.sum(y**2), lambda y: -2 * jnp.sum(y**2), x)


def looped(x):
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] - x[s[0]] ** 2),
                              (0, jnp.zeros(())))[1]  # fmt: skip


def factorised(x):
    return -jnp.sum(jax.scipy.linalg.solve_triangular(jnp.eye(3), x, lower=True) ** 2)


SOUND = {
    "scan": scanned,
    "while": looped,
    "cond": conditional,
    "dynamic gather": dynamic,
    "custom_vjp": custom,
    "pure_callback": called_back,
    "sorted": lambda x: -jnp.sum(jnp.sort(x) ** 2),
    "scatter": lambda x: -jnp.sum(jnp.zeros(3).at[jnp.array([2, 0, 1])].set(x) ** 2),
    "LAPACK": factorised,
    "a box": lambda x: jnp.where(jnp.all(jnp.abs(x) < 1), 0.0, -jnp.inf),
    "a far box": lambda x: jnp.where(jnp.all(jnp.abs(x - 50) < 1), 0.0, -jnp.inf),
    "clipped on purpose": lambda x: -jnp.sum(x**2) - x.at[5].get(mode="clip") ** 2,
    "the last": lambda x: -jnp.sum(x**2) - x[-3] ** 2 - x[2] ** 2,
    "rolled": lambda x: -jnp.sum((x - jnp.roll(x, 1)) ** 2) - x[0] ** 2,
    "cumulative": lambda x: -(jnp.cumsum(x)[-1] ** 2) - jnp.max(jnp.abs(x)),
    "heavy tail": lambda x: jax.lax.scan(lambda s, v: (s - jnp.log1p(v**2), None), 0.0, x)[0],
    "a step far out": lambda x: -jnp.sum(jnp.where(jnp.abs(x) > 1e5, x**2, 0.0)),
}


@pytest.mark.parametrize("density", SOUND.values(), ids=SOUND)
def test_a_use_that_is_hidden_passes(density):
    validation.check_density(inv.Target(density, dim=3))


def test_what_the_program_hides_evaluations_find():
    """A loop may read anything; but the density is the same a million to either side."""
    target = inv.Target(ignored_in_a_scan, dim=3)
    assert reading_of(ignored_in_a_scan, 3).coordinates.tolist() == [PERHAPS] * 3
    with pytest.raises(inv.InputError, match=r"ignores x\[2\] of 3"):
        inv.sample(inv.random_walk(target, 0.5), key=0, num_chains=2, num_samples=4)


def test_what_is_read_is_known_where_it_can_be():
    assert reading_of(two_of_three, 3).coordinates.tolist() == [READ, READ, UNREAD]
    for make in (inv.targets.mog6, inv.targets.ring5, inv.targets.funnel):
        target = make()
        assert (reading_of(target.log_density, target.dim).coordinates == READ).all()


OUTSIDE = {
    "one too far": (lambda x: -jnp.sum(x**2) - x[3], "got index 3 for 3 numbers; use -3 to 2"),
    "negative": (lambda x: -jnp.sum(x**2) - x[-4], "got index -4 for 3 numbers"),
    "gather": (lambda x: -jnp.sum(x**2) - x[jnp.array([0, 7])].sum(), "got index 7 for 3"),
    "take": (lambda x: -jnp.sum(x**2) - jnp.take(x, 4), "got index 4 for 3 numbers"),
    "second axis": (lambda x: -jnp.sum(x**2) - x.reshape(1, 3)[0, 3], "got index 3 for 3"),
    "in a scan": (
        lambda x: jax.lax.scan(lambda s, v: (s - v**2 - x[5], None), 0.0, x)[0],
        "got index 5 for 3 numbers",
    ),
}


@pytest.mark.parametrize(("density", "words"), OUTSIDE.values(), ids=OUTSIDE)
def test_an_index_outside_its_axis_is_named(density, words):
    with pytest.raises(inv.InputError, match=words) as error:
        inv.Target(density, dim=3)
    assert "\n" not in str(error.value)


def branching(x):
    if x[0] > 0:
        return -jnp.sum(x**2)
    return -2 * jnp.sum(x**2)


def stepping(x):
    return -sum(x[i] ** 2 for i in range(x.astype(int)[0]))


PYTHON = {
    "if": (branching, r"replace `if` by jnp.where .*backend=\"numpy\""),
    "numpy": (lambda x: np.log(x).sum(), r"jax.numpy in place of numpy, or pass backend=\"numpy\""),
    "math": (lambda x: math.log(x[0]), "jax.numpy in place of math, float and int"),
    "range": (stepping, "index with jnp.take, loop with lax.fori_loop"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("density", "words"), PYTHON.values(), ids=PYTHON)
def test_python_that_jax_cannot_trace_gets_its_remedy(density, words):
    with pytest.raises(inv.InputError, match=words) as error:
        inv.Target(density, dim=2)
    assert "\n" not in str(error.value)


CONSTRAIN = {
    "an array": (lambda x: x, "must return a dict of named arrays, .* got "),
    "nothing": (lambda x: None, "got NoneType"),
    "nested": (lambda x: {"a": {"b": x}}, "got no array for a; nest no dicts"),
    "failing": (lambda x: {"a": x["a"]}, "but it raised .*it receives what log_density receives"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("constrain", "words"), CONSTRAIN.values(), ids=CONSTRAIN)
def test_a_constrain_that_names_nothing_is_refused(constrain, words):
    with pytest.raises(inv.InputError, match=words):
        inv.Target(lambda x: -jnp.sum(x**2), dim=2, constrain=constrain)


def test_a_position_of_words_is_refused():
    with pytest.raises(inv.InputError, match=r"must hold numbers.*, got 'x' at a; pass"):
        inv.Target(lambda p: p["a"], like={"a": "x"})
