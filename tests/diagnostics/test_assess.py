"""The bound on KL: never below the truth where that can be computed, and what makes it move."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution, Normal

import involutive as inv
from involutive.diagnostics.assess import reverse_kernel
from involutive.kernel.kernel import AbstractKernel, Info, State

# ── Kernels on a grid, where everything is a matrix ─────────────────────────────────────────────


def _nearest(points, x):
    return jnp.argmin(jnp.sum((points - x[None, :]) ** 2, axis=1))


class GridLaw(AbstractDistribution):
    """A law on finitely many points; its density is its mass."""

    points: Any
    log_mass: Any
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = None

    def _log_prob(self, x, condition=None):
        return self.log_mass[_nearest(self.points, x)]

    def _sample(self, key, condition=None):
        return self.points[jr.categorical(key, self.log_mass)]


class GridKernel(AbstractKernel):
    """Moves by a transition matrix between the points of a grid."""

    target: inv.Target
    initial: AbstractDistribution | None
    points: Any
    log_matrix: Any

    def draw(self, key):
        return jr.gumbel(key, (len(self.points),))  # `categorical` draws the same

    def move(self, noise, state):
        row = self.log_matrix[_nearest(self.points, state.position)]
        position = self.points[jnp.argmax(noise + row)]
        moved = State(position, jnp.asarray(self.target.log_density(position)))
        yes, no = jnp.array(True), jnp.array(False)
        return moved, Info(position, jnp.zeros(()), yes, jnp.ones(()), no, no)


def metropolis(log_p, points, scale):
    """The transition matrix of random-walk Metropolis on the points, and its stationary law."""
    apart = np.sum((points[:, None] - points[None]) ** 2, axis=2)
    propose = np.exp(-0.5 * apart / scale**2)
    propose = 0.9 * propose / propose.sum(axis=1).max()  # symmetric; the rest stays
    matrix = propose * np.minimum(1, np.exp(log_p[None, :] - log_p[:, None]))
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    mass = np.exp(log_p - log_p.max())
    return matrix, mass / mass.sum()


def symmetric_kl(q, p):
    return float(np.sum((q - p) * np.log(q / p)))


def grid_case(dim):
    """A bimodal law on a grid, chains started on one side of it."""
    axis = np.linspace(-2.5, 2.5, 41 if dim == 1 else 11)
    points = np.stack(np.meshgrid(*[axis] * dim), axis=-1).reshape(-1, dim)
    log_p = np.logaddexp(
        -0.5 * np.sum((points - 1.2) ** 2, axis=1) / 0.25,
        np.log(2) - 0.5 * np.sum((points + 1.2) ** 2, axis=1) / 0.25,
    )
    matrix, p = metropolis(log_p, points, 0.9)
    start = np.exp(-0.5 * np.sum((points - 0.7) ** 2, axis=1) / 0.3)
    start /= start.sum()
    grid, shift = jnp.asarray(points), 7.0  # an unnormalised density: the constant must cancel
    target = inv.Target(lambda x: jnp.log(jnp.asarray(p))[_nearest(grid, x)] + shift, dim)
    exact = lambda key, n: grid[jr.categorical(key, jnp.log(jnp.asarray(p)), shape=(n,))]  # noqa: E731
    target = inv.Target(target.log_density, dim, name="grid", sample=exact)
    law = GridLaw(grid, jnp.log(jnp.asarray(start)), (dim,))
    kernel = GridKernel(target, law, grid, jnp.log(jnp.asarray(matrix)))
    np.testing.assert_allclose(p[:, None] * matrix, (p[:, None] * matrix).T, atol=1e-12)
    truth = lambda b: symmetric_kl(start @ np.linalg.matrix_power(matrix, b), p)  # noqa: E731
    return kernel, truth


@pytest.mark.parametrize("dim", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_never_below_the_truth_and_falls_with_runs(dim):
    kernel, truth = grid_case(dim)
    steps = (0, 1, 6)
    exact = np.array([truth(b) for b in steps])
    assert exact[0] > 1 and exact[-1] < exact[1] < exact[0]
    previous = None
    for runs in (2, 32):
        seen = inv.assess(kernel, steps=steps, runs=runs, starts=256, key=1, reverse=kernel)
        assert (seen.bounds > exact - 4 * seen.errors).all(), (runs, seen.bounds, exact)
        if previous is not None:
            both = np.hypot(seen.errors, previous.errors)
            assert (seen.bounds[1:] < previous.bounds[1:] - 2 * both[1:]).all()
        previous = seen


def test_zero_steps_is_the_divergence_of_the_start():
    target, law = inv.targets.gaussian(1), Normal(jnp.array([0.5]), jnp.array([0.8]))
    kernel = inv.random_walk(target, 1.0, initial=law)
    seen = inv.assess(kernel, steps=0, runs=2, starts=4096, key=0)
    forward = -np.log(0.8) + 0.5 * (0.8**2 + 0.25 - 1)
    backward = np.log(0.8) + 0.5 * ((1 + 0.25) / 0.8**2 - 1)
    assert abs(seen.bound - forward - backward) < 4 * seen.errors[0]
    assert seen.interval[0] < seen.bound < seen.interval[1]


# ── Continuous kernels ──────────────────────────────────────────────────────────────────────────


def test_a_random_walk_against_its_discretised_law():
    """The b-step density of random-walk Metropolis on the line, by quadrature on a fine grid."""
    scale, axis = 1.0, np.linspace(-6, 6, 601)
    gap = axis[1] - axis[0]
    log_p = -0.5 * axis**2
    propose = (
        np.exp(-0.5 * ((axis[:, None] - axis) / scale) ** 2) / np.sqrt(2 * np.pi) / scale * gap
    )
    matrix = propose * np.minimum(1, np.exp(log_p[None] - log_p[:, None]))
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, 1 - matrix.sum(axis=1))
    p = np.exp(log_p) / np.exp(log_p).sum()
    start = np.exp(-0.5 * ((axis - 1) / 0.7) ** 2)
    start /= start.sum()
    law = Normal(jnp.array([1.0]), jnp.array([0.7]))
    kernel = inv.random_walk(inv.targets.gaussian(1), scale, initial=law)
    steps = (1, 3, 8)
    truth = np.array([symmetric_kl(start @ np.linalg.matrix_power(matrix, b), p) for b in steps])
    seen = inv.assess(kernel, steps=steps, runs=32, starts=512, key=2)
    assert (seen.bounds > truth - 4 * seen.errors).all(), (seen.bounds, truth)
    assert (seen.bounds < truth + 0.05 + 4 * seen.errors).all(), (seen.bounds, truth)
    assert truth[0] > 0.2 > truth[2]


def mixture_law(weights, means, sd):
    means = np.asarray(means, float)
    covariances = np.repeat(sd**2 * np.eye(means.shape[1])[None], len(means), axis=0)
    return inv.GaussianMixture(jnp.asarray(weights), jnp.asarray(means), jnp.asarray(covariances))


MEANS = [[-5.0, 0.0], [5.0, 0.0]]


@pytest.mark.deep
def test_goes_to_zero_for_an_independent_sampler():
    law, start = mixture_law([0.5, 0.5], MEANS, 0.5), mixture_law([0.9, 0.1], MEANS, 0.4)
    kernel = inv.Kernel(inv.targets.mog2(), inv.FunctionBlock(fb.Identity((2,))), law, start)
    bounds = [inv.assess(kernel, steps=1, runs=m, starts=256, key=3) for m in (2, 128)]
    assert bounds[0].bound > 0.3
    assert abs(bounds[1].bound) < 0.02 + 3 * bounds[1].errors[0]


@pytest.mark.deep
def test_stays_large_for_a_sampler_stuck_in_a_mode():
    one = mixture_law([1.0], MEANS[:1], 0.4)
    kernel = inv.hmc(inv.targets.mog2(), 0.2, 5, initial=one)
    seen = inv.assess(kernel, steps=(1, 30), runs=16, starts=128, key=4)
    assert (seen.bounds > 20).all() and seen.reference == "exact draws"


@pytest.mark.deep
def test_a_reference_without_the_other_mode_cannot_see_it():
    one = mixture_law([1.0], MEANS[:1], 0.45)
    target = inv.Target(inv.targets.mog2().log_density, 2)
    kernel = inv.hmc(target, 0.25, 4, initial=one)
    seen = inv.assess(kernel, steps=10, runs=32, starts=128, key=5)
    assert seen.reference.startswith("a long run (R-hat 1.0")
    assert seen.bound < 0.3, "and this is why the reference is part of the result"


@pytest.mark.deep
def test_a_long_run_that_has_not_converged_is_refused():
    target = inv.Target(inv.targets.mog2().log_density, 2)
    kernel = inv.hmc(target, 0.2, 5, initial=mixture_law([0.5, 0.5], MEANS, 0.4))
    with pytest.raises(inv.InputError, match=r"must have R-hat at most 1\.01 and 128 effective"):
        inv.assess(kernel, steps=2, runs=4, starts=128, key=0)


@pytest.mark.deep
def test_a_cycle_is_run_backwards_in_the_other_order():
    target, law = inv.targets.gaussian(1), Normal(jnp.array([0.5]), jnp.array([0.8]))
    walk, flow = inv.random_walk(target, 1.0, initial=law), inv.hmc(target, 0.4, 3)
    back = reverse_kernel(inv.Cycle([walk, inv.Mixture([flow, walk], [0.3, 0.7])]))
    assert isinstance(back, inv.Cycle) and isinstance(back.kernels[0], inv.Mixture)
    assert back.kernels[1] is walk
    seen = inv.assess(inv.Cycle([walk, flow]), steps=4, runs=32, starts=128, key=6)
    assert seen.bound < 0.1 + 3 * seen.errors[0]


def test_given_reference_and_printing():
    target, law = inv.targets.gaussian(2), Normal(jnp.zeros(2), 0.9 * jnp.ones(2))
    kernel = inv.random_walk(target, 1.0, initial=law)
    rows = jax.random.normal(jr.key(0), (200, 2))
    seen = inv.assess(kernel, steps=[1, 2], runs=4, starts=64, key=0, reference=rows)
    assert seen.reference == "64 given draws" and seen.target == "gaussian(2)"
    assert [row["steps"] for row in seen.curve] == [1, 2]
    assert "after 2 steps: at most" in str(seen) and "M = 4 chains" in str(seen)
    again = inv.assess(kernel, steps=[1, 2], runs=4, starts=64, key=0, reference=rows)
    np.testing.assert_array_equal(again.bounds, seen.bounds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runs": 1}, "runs must be at least 2, got 1: the bound with one chain depends on X"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"steps": [3, 2]}, r"steps must increase, got \(3, 2\)"),
        ({"steps": []}, "steps must hold at least one number"),
        ({"starts": 4}, "starts must be at least 16, got 4"),
        ({"reference": np.zeros((50, 3))}, r"reference must be at least 16 finite draws of shape"),
        ({"initial": Normal(jnp.zeros(3))}, "initial must be a distribution of 2 coordinates"),
    ],
)
def test_bad_input_is_refused_before_work(change, words):
    law = Normal(jnp.zeros(2))
    kernel = inv.random_walk(inv.targets.gaussian(2), 1.0, initial=law)
    with pytest.raises(inv.InputError, match=words):
        inv.assess(kernel, **({"steps": 1, "runs": 4, "key": 0} | change))


def test_kernels_without_a_law_or_a_reverse_are_refused():
    bare = inv.random_walk(inv.targets.gaussian(2), 1.0)
    with pytest.raises(inv.InputError, match="must be a distribution X with a density"):
        inv.assess(bare, steps=1, runs=4, key=0)
    kernel, _ = grid_case(1)
    with pytest.raises(inv.InputError, match="for its reverse to be known, got GridKernel"):
        inv.assess(kernel, steps=1, runs=4, key=0)


@pytest.mark.deep
def test_the_experiment_shows_what_it_claims():
    from involutive.experiments import assessment

    config = assessment.Config.quick()
    data = assessment.run(config)
    assert data["bounds"].shape == (2, 4, 3)
    for claim, holds in assessment.claims(data).items():
        assert holds, (claim, assessment.table(data), data["run_bounds"])
    names = {name for name, _ in config.kernels} | {"default recipe, its own X"}
    assert {row["kernel"] for row in assessment.table(data)} == names
    figures = assessment.draw(data)
    assert set(figures) == {"assessment", "assessment_runs"}
    assert len(figures["assessment"].axes) == 2


def test_a_start_that_is_large_where_the_posterior_vanishes_needs_too_many_runs():
    """The figure in the experiment's docstring: log X/p at the origin of mog6, X = N(0, I)."""
    target, origin = inv.targets.mog6(), jnp.zeros(2)
    constant = jnp.log(2 * jnp.pi * 0.25)  # of the components, which the target leaves out
    log_weight = Normal(origin).log_prob(origin) - (target.log_density(origin) - constant)
    assert 48 < float(log_weight) < 50
