"""Symmetries that are found, those that are not there, and what is made of them."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

import involutive as inv

DATA = np.concatenate([np.linspace(-4, -3, 8), np.linspace(2.5, 4, 12)])


def mixture_model(groups: int, order: np.ndarray) -> inv.Target:
    """Means, log scales and weights of a Gaussian mixture, their coordinates in a given order."""

    def log_density(x: Array) -> Array:
        mean, log_sd, logit = x[jnp.asarray(order)].reshape(3, groups)
        z = (jnp.asarray(DATA)[:, None] - mean[None, :]) / jnp.exp(log_sd)[None, :]
        parts = (jax.nn.log_softmax(logit) - log_sd)[None, :] - 0.5 * z**2
        return jnp.sum(jax.scipy.special.logsumexp(parts, axis=1)) - 0.5 * jnp.sum(x**2 / 9)

    return inv.Target(log_density, 3 * groups, name="free labels")


def groups_of(found: inv.Symmetries) -> set[frozenset]:
    return {frozenset(frozenset(row) for row in np.asarray(rows).tolist()) for rows in found.labels}


@pytest.mark.parametrize("layout", ["vectors", "components", "shuffled"])
@pytest.mark.parametrize("groups", [2, 3, 4])
def test_free_labels_are_found(groups, layout):
    order = {
        "vectors": np.arange(3 * groups),
        "components": np.arange(3 * groups).reshape(groups, 3).T.ravel(),
        "shuffled": np.random.default_rng(groups).permutation(3 * groups),
    }[layout]
    found = inv.symmetries(mixture_model(groups, order), key=0)
    expected = frozenset(frozenset(row) for row in order.reshape(3, groups).T.tolist())
    assert groups_of(found) == {expected}
    assert len(found.flips) == 0
    assert f"{groups} interchangeable groups" in str(found)


def test_flips_are_found_alone_and_together():
    target = inv.Target(
        lambda x: -(x[0] ** 2) - (x[1] * x[2] - 1) ** 2 - x[1] ** 4 + x[3] - x[3] ** 2, 4
    )
    found = inv.symmetries(target, key=0)
    assert np.asarray(found.flips).tolist() == [
        [True, False, False, False]
    ]  # 1 and 2 are neighbours in no regular block of four coordinates
    lattice = inv.Target(lambda x: -jnp.sum(x**4) + jnp.sum(x * jnp.roll(x, 1)), 4)
    assert "all coordinates together" in str(inv.symmetries(lattice, key=0))


def test_particles_in_the_plane():
    def log_density(x: Array) -> Array:
        p = x.reshape(4, 2)
        first, second = np.triu_indices(4, 1)
        distance = jnp.sqrt(jnp.sum((p[first] - p[second]) ** 2, axis=1))
        return -jnp.sum((distance - 2) ** 2) - jnp.sum(p.mean(0) ** 2)

    found = inv.symmetries(inv.Target(log_density, 8), key=0)
    assert groups_of(found) == {frozenset(frozenset((2 * i, 2 * i + 1)) for i in range(4))}
    assert len(found.flips) == 2
    assert found.num_rotations == 2  # of the centre, and of the rest about it
    assert "rotation of space" in str(found)


SKEW = np.array([[1.0, 0.7, 0.0], [0.0, 1.5, 0.4], [0.3, 0.0, 0.8]])
SHELL = inv.Target(lambda x: -((jnp.sum((jnp.asarray(SKEW) @ (x - 1.0)) ** 2) - 4.0) ** 2), 3)


def test_rotations_are_found_in_coordinates_that_are_stretched_and_moved():
    found = inv.symmetries(SHELL, key=0)
    assert found.num_rotations == 3 and "3 generators" in str(found)
    x = jnp.array([0.4, 2.0, 1.3])
    for angles in jr.normal(jr.key(0), (5, 3)):
        there = found.turned(x, angles)
        np.testing.assert_allclose(SHELL.log_density(there), SHELL.log_density(x), rtol=1e-6)
        np.testing.assert_allclose(found.turned(there, -angles, backward=True), x, rtol=1e-6)
        assert np.linalg.norm(there - x) > 0.1


def test_a_translation_and_a_scale_are_no_rotations():
    target = inv.Target(lambda x: -((x[0] - x[1]) ** 2) - x[0] ** 4 - jnp.cosh(x[2]), 3)
    assert inv.symmetries(target, key=0).num_rotations == 0


def test_chains_turn_and_are_saved(tmp_path):
    move = inv.SymmetryMove(SHELL, inv.symmetries(SHELL, key=0))
    inv.save(tmp_path / "k.inv", move)
    kernel = inv.load(tmp_path / "k.inv", SHELL)
    start = np.tile(np.linalg.solve(SKEW, [2.0, 0.0, 0.0]) + 1.0, (16, 1))
    draws = inv.sample(kernel, key=0, num_chains=16, num_samples=300, initial=start, progress=False)
    assert draws.accepted.mean() > 0.999
    round_again = (draws.positions - 1.0) @ SKEW.T
    np.testing.assert_allclose(np.linalg.norm(round_again, axis=-1), 2.0, rtol=1e-6)
    assert np.abs(round_again.mean(axis=(0, 1))).max() < 0.15


def test_nothing_is_found_where_nothing_is():
    weights = jnp.arange(1.0, 4.0)
    target = inv.Target(lambda x: -jnp.sum(weights * (x - weights) ** 4), 3)
    found = inv.symmetries(target, key=0)
    assert len(found) == 0
    assert str(found) == "no symmetry found"


def test_nearly_is_not_enough():
    target = inv.Target(lambda x: -jnp.sum(x**2) + 1e-4 * x[0], 2)
    assert np.asarray(inv.symmetries(target, key=0).flips).tolist() == [[False, True]]


def test_points_are_given_where_a_density_vanishes_elsewhere():
    def log_density(x: Array) -> Array:
        return jnp.where(jnp.all(jnp.abs(x - 30) < 2), -jnp.sum((x - 30) ** 2), -jnp.inf)

    target = inv.Target(log_density, 2)
    assert len(inv.symmetries(target, key=0)) == 0
    points = 30 + np.random.default_rng(0).normal(size=(50, 2)) * 0.3
    assert "2 interchangeable coordinates" in str(inv.symmetries(target, key=0, points=points))


# ── what is made of them ────────────────────────────────────────────────────────────────────────

GROUP = inv.Symmetries(4, labels=[[[0, 2], [1, 3]]], flips=[[False, False, True, True]])


def test_leaving_the_support_is_no_symmetry():
    """Two boxes of different size around ±2: coordinates can be exchanged, not flipped."""

    def log_density(x):
        large, small = jnp.all(jnp.abs(x - 2) < 1), jnp.all(jnp.abs(x + 2) < 0.5)
        return jnp.where(large, 0.0, jnp.where(small, jnp.log(4.0), -jnp.inf))

    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(1, 3, (80, 3)), rng.uniform(-2.5, -1.5, (40, 3))])
    found = inv.symmetries(inv.Target(log_density, 3), key=0, points=points)
    assert str(found) == "3 interchangeable coordinates: 0, 1, 2"


def test_involutions_are_their_own_inverse_and_accepted():
    target = mixture_model(3, np.arange(9))
    x = jnp.linspace(-1, 1, 9)
    for f in inv.symmetries(target, key=0):
        moved, log_det = f(x)
        assert log_det == 0
        np.testing.assert_allclose(f(moved)[0], x)
        np.testing.assert_allclose(target.log_density(moved), target.log_density(x))


def test_fold_is_one_point_of_every_orbit():
    x = jnp.array([0.3, -1.2, -0.4, 2.0])
    orders, signs = GROUP.elements()
    assert len(orders) == 4
    images = jnp.asarray(signs) * x[jnp.asarray(orders)]
    assert len(np.unique(np.asarray(images), axis=0)) == 4
    folded = jax.jit(jax.vmap(GROUP.fold))(images)
    np.testing.assert_allclose(folded, jnp.broadcast_to(folded[:1], folded.shape))


def test_elements_are_a_group():
    group = inv.Symmetries(3, labels=[[[0], [1], [2]]], flips=[[True, False, False]])
    orders, signs = group.elements()
    assert len(orders) == 6 * 8  # a flip that permutations carry to every coordinate
    known = {(*o, *s) for o, s in zip(orders.tolist(), signs.tolist(), strict=True)}
    for a, b in itertools.product(range(0, 48, 5), range(48)):
        order = orders[b][orders[a]]
        sign = signs[a] * signs[b][orders[a]]
        assert (*order.tolist(), *sign.tolist()) in known
    assert len(group.elements(most=10)[0]) == 6


def test_symmetrised_density_is_that_of_its_draws():
    base = inv.GaussianMixture(
        jnp.ones(1), jnp.array([[2.0, -1.0, 0.5, 1.0]]), 0.3 * jnp.eye(4)[None]
    )
    q = inv.Symmetrised(base, GROUP)
    rows = jax.jit(jax.vmap(q.sample))(jr.split(jr.key(0), 4000))
    near = jnp.linalg.norm(rows - base.means[0][None], axis=1) < 1.5
    assert abs(float(near.mean()) - 0.25 * float(_inside(base))) < 0.03
    images = jnp.stack([f(rows[0])[0] for f in GROUP])
    values = jax.jit(jax.vmap(q.log_prob))(images)
    np.testing.assert_allclose(values, np.full(len(images), values[0]), rtol=1e-6)
    # E_q[b/q] = 1 for a normalised b inside the support of q
    ratio = jnp.exp(jax.jit(jax.vmap(base.log_prob))(rows) - jax.jit(jax.vmap(q.log_prob))(rows))
    assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 4000**0.5


def _inside(base: inv.GaussianMixture) -> Array:
    rows = jax.jit(jax.vmap(base.sample))(jr.split(jr.key(1), 4000))
    return (jnp.linalg.norm(rows - base.means[0][None], axis=1) < 1.5).mean()


def test_all_orders_of_labels_are_visited_and_saved(tmp_path):
    target = mixture_model(3, np.arange(9))
    move = inv.SymmetryMove(target, inv.symmetries(target, key=0))
    kernel = inv.Cycle([inv.random_walk(target, 0.1), move])
    inv.save(tmp_path / "k.inv", kernel)
    kernel = inv.load(tmp_path / "k.inv", target)
    start = np.tile([-3.5, 2.5, 3.5, -1, -1, -1, 0, 0, 0], (32, 1)).astype(float)
    draws = inv.sample(kernel, key=0, num_chains=32, num_samples=60, initial=start, progress=False)
    order = np.argsort(draws.positions[..., :3], axis=-1) @ [9, 3, 1]
    _, counts = np.unique(order, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts / counts.sum() - 1 / 6).sum() / 2 < 0.08


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: inv.SignedPermutation([1, 2, 0], [1, 1, 1]), "must be its own inverse"),
        (lambda: inv.SignedPermutation([1, 0], [1, -1]), "must be its own inverse"),
        (lambda: inv.Symmetries(2, labels=[[[0], [0]]]), "labels must be matrices"),
        (
            lambda: inv.SymmetryMove(inv.targets.mog2(), inv.Symmetries(2)),
            "must hold at least one symmetry",
        ),
    ],
)
def test_bad_input(make, words, as_users_run):
    with pytest.raises(inv.InputError, match=words):
        make()
