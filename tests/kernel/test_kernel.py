"""The kernel: BlackJAX's contract, BlackJAX's answers, and what happens where densities break."""

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from blackjax.util import run_inference_algorithm
from flowjax import bijections as fb
from flowjax.distributions import Normal, StandardNormal, Transformed

import involutive as inv
from involutive.auxiliary import ManyNormal, for_many
from involutive.involutions.classical import RandomWalk
from zoo import skewed

CHAINS, STEPS = 64, 2000


def halfline(inside, outside):
    """A normal density with another value on the positive half of its first axis."""

    def log_density(x):
        return jnp.where(x[0] > 0, outside, inside(x))

    return inv.Target(log_density, 2, name="halfline")


def normal(x):
    return -0.5 * jnp.sum(x**2)


@eqx.filter_jit
def step_each(kernel, keys, start):
    """One step from one state with each of many keys, in one compilation."""
    return jax.vmap(kernel.step, (0, None))(keys, start)


# ── BlackJAX's contract ─────────────────────────────────────────────────────────────────────────


def test_blackjax_drives_the_kernel(getkey):
    kernel = inv.random_walk(skewed(2), 1.0)
    final, (states, infos) = run_inference_algorithm(
        getkey(), kernel, 100, initial_position=jnp.zeros(2)
    )
    assert isinstance(final, inv.State) and isinstance(infos, inv.Info)
    assert states.position.shape == (100, 2) and infos.is_accepted.shape == (100,)
    np.testing.assert_array_equal(states.position[-1], final.position)
    np.testing.assert_allclose(
        states.logdensity, jax.vmap(kernel.target.log_density)(states.position), rtol=1e-12
    )


def test_info_says_what_happened(getkey):
    kernel = inv.random_walk(skewed(2), 1.0)
    keys = jr.split(getkey(), 500)
    start = kernel.init(jnp.array([0.5, -0.2]))
    after, info = step_each(kernel, keys, start)
    moved = np.any(after.position != start.position[None], axis=1)
    assert (moved == info.accepted).all() and 0.2 < float(moved.mean()) < 0.9
    expected = jnp.where(info.accepted[:, None], info.proposal, start.position[None])
    np.testing.assert_array_equal(after.position, expected)
    gained = jax.jit(jax.vmap(kernel.target.log_density))(info.proposal) - start.log_density
    np.testing.assert_allclose(info.log_ratio, gained, atol=1e-12)
    np.testing.assert_allclose(info.acceptance_rate, jnp.minimum(1, jnp.exp(gained)), atol=1e-12)
    assert not bool(jnp.any(info.nonfinite | info.irreversible))


def test_acceptance_has_its_probability(getkey):
    """A proposal of ratio 1/4 is accepted one time in four."""
    target = inv.Target(lambda x: jnp.where(x[0] > 0, jnp.log(0.25), 0.0), 1)
    kernel = inv.Kernel(target, inv.MatrixBlock([1.0, 0.0], [1.0, 0.0]), StandardNormal((1,)))
    start = kernel.init(jnp.array([-1.0]))
    _, info = step_each(kernel, jr.split(getkey(), 40_000), start)
    np.testing.assert_allclose(info.acceptance_rate, 0.25)
    assert abs(float(info.accepted.mean()) - 0.25) < 4.5 * np.sqrt(0.25 * 0.75 / 40_000)


def test_float32_state_keeps_its_precision():
    with jax.enable_x64(False):
        state, info = inv.random_walk(skewed(2), 1.0).step(
            jr.key(0), inv.random_walk(skewed(2), 1.0).init(jnp.zeros(2))
        )
        assert (
            state.position.dtype == state.log_density.dtype == info.log_ratio.dtype == jnp.float32
        )


# ── BlackJAX's answers ──────────────────────────────────────────────────────────────────────────


def run_blackjax(algorithm, starts, key):
    """Positions `(chains, steps, dim)` of a BlackJAX sampler."""
    states = jax.vmap(algorithm.init)(starts)

    def step(states, key):
        states, info = jax.vmap(algorithm.step)(jr.split(key, CHAINS), states)
        return states, (states.position, info.acceptance_rate)

    _, (positions, rate) = jax.lax.scan(step, states, jr.split(key, STEPS))
    return jnp.swapaxes(positions, 0, 1), rate.mean()


def z_scores(ours, theirs):
    """Differences of means and of second moments, in units of their Monte Carlo error."""

    def moments(x):
        values = np.concatenate([x, x**2, x[..., :1] * x[..., 1:]], axis=-1)
        ess = np.asarray(effective_sample_size(jnp.asarray(values)))
        assert ess.min() > 400
        return values.mean((0, 1)), values.var((0, 1)) / ess

    (mean, error), (other, other_error) = moments(ours), moments(theirs)
    return (mean - other) / np.sqrt(error + other_error)


@pytest.mark.deep
@pytest.mark.parametrize("which", ["random walk", "hmc"])
def test_agrees_with_blackjax(which, getkey):
    """Same target, same step: the same acceptance and moments, within Monte Carlo error."""
    target = skewed(2)
    starts = jr.normal(getkey(), (CHAINS, 2))
    if which == "random walk":
        ours = inv.random_walk(target, 1.2)
        steps = blackjax.mcmc.random_walk.normal(jnp.full(2, 1.2))
        theirs = blackjax.additive_step_random_walk(target.log_density, steps)
    else:
        ours = inv.hmc(target, 0.4, 4)
        theirs = blackjax.hmc(target.log_density, 0.4, jnp.ones(2), 4)
    reference, rate = jax.jit(lambda key: run_blackjax(theirs, starts, key))(getkey())
    draws = inv.sample(ours, key=getkey(), num_chains=CHAINS, num_samples=STEPS, initial=starts)
    assert abs(draws.acceptance_rate.mean() - float(rate)) < 0.01
    assert np.abs(z_scores(draws.positions, np.asarray(reference))).max() < 4


def test_leapfrog_is_blackjaxs(getkey):
    """One trajectory from the same momentum ends at the same point."""
    target = skewed(2)
    state = blackjax.mcmc.integrators.IntegratorState(
        jnp.array([0.3, -1.0]), jnp.array([0.7, 0.2]), *jax.value_and_grad(target.log_density)(
            jnp.array([0.3, -1.0])
        )
    )  # fmt: skip
    z = jnp.concatenate([state.position, state.momentum])
    moved, _ = inv.hmc(target, 0.3, 5).involution(z)
    energy = blackjax.mcmc.metrics.gaussian_euclidean(jnp.ones(2)).kinetic_energy
    step = blackjax.mcmc.integrators.velocity_verlet(target.log_density, energy)
    for _ in range(5):
        state = step(state, 0.3)
    expected = jnp.concatenate([state.position, -state.momentum])
    np.testing.assert_allclose(moved, expected, rtol=1e-10)


# ── where densities break ───────────────────────────────────────────────────────────────────────


def test_nan_density_is_rejected_and_counted():
    kernel = inv.random_walk(halfline(normal, jnp.nan), 2.0)
    start = -jnp.ones((16, 2))
    draws = inv.sample(kernel, key=0, num_chains=16, num_samples=500, initial=start)
    assert np.isfinite(draws.positions).all() and np.isfinite(draws.log_density).all()
    assert (draws.positions[..., 0] <= 0).all()
    assert (draws.nonfinite > 50).all() and (draws.nonfinite < 450).all()
    assert not draws.stopped.any() and (draws.irreversible == 0).all()
    # what is left is the truncated law: a half normal has mean √(2/π)
    assert abs(draws.positions[..., 0].mean() + np.sqrt(2 / np.pi)) < 0.05


def test_minus_infinity_is_outside_the_support_and_no_fault():
    kernel = inv.random_walk(halfline(normal, -jnp.inf), 2.0)
    draws = inv.sample(kernel, key=0, num_chains=8, num_samples=200, initial=-jnp.ones((8, 2)))
    assert (draws.positions[..., 0] <= 0).all() and (draws.nonfinite == 0).all()
    assert draws.accepted.mean() > 0.1


def test_plus_infinity_stops_the_chain_and_is_reported():
    """The chain stays at its last good place; the others are not touched."""
    kernel = inv.random_walk(halfline(normal, jnp.inf), 0.5)
    start = np.array([[-0.1, 0.0], [-40.0, 0.0]])
    draws = inv.sample(kernel, key=0, num_chains=2, num_samples=60, initial=start)
    assert draws.stopped.tolist() == [True, False]
    assert draws.nonfinite[0] >= 1 and draws.nonfinite[1] == 0
    assert np.isfinite(draws.positions).all() and (draws.positions[..., 0] <= 0).all()
    when = int(np.argmax(np.isposinf(draws.log_density[0])))
    assert (draws.positions[0, when:] == draws.positions[0, max(when - 1, 0)]).all()
    assert not draws.accepted[0, when:].any() and draws.accepted[1].any()


def test_a_proposal_that_is_not_finite_is_rejected_and_counted(getkey):
    overflow = inv.Conjugate(
        inv.AdditiveCoupling(lambda a: jnp.exp(800 * a**2), 2, 1), inv.PermutationBlock.swap(2)
    )
    kernel = inv.Kernel(skewed(1), overflow, inv.standard_normal(1))
    state, info = kernel.step(getkey(), kernel.init(jnp.array([2.0])))
    assert bool(info.nonfinite) and not bool(info.accepted) and float(state.position[0]) == 2.0
    assert float(info.acceptance_rate) == 0


class Drifting(inv.AbstractInvolution):
    """Nearly an involution: it returns only to within `drift`."""

    drift: float = eqx.field(static=True)

    @property
    def size(self):
        return 4

    @property
    def volume_preserving(self):
        return True

    def __call__(self, z):
        moved, log_det = RandomWalk(1.0, 2)(z)
        return moved + jnp.where(z[0] > 0, self.drift, 0.0), log_det


def test_guard_rejects_and_counts_moves_that_do_not_return():
    def run(**settings):
        kernel = inv.Kernel(skewed(2), Drifting(1e-3), inv.standard_normal(2), **settings)
        return inv.sample(kernel, key=0, num_chains=8, num_samples=200)

    trusting, guarded = run(), run(guard=1e-6)
    assert (trusting.irreversible == 0).all() and (trusting.positions[..., 0] > 0).any()
    assert (guarded.irreversible > 10).all()
    exact = inv.Kernel(skewed(2), RandomWalk(1.0, 2), inv.standard_normal(2), guard=1e-9)
    assert (inv.sample(exact, key=0, num_chains=8, num_samples=200).irreversible == 0).all()


# ── mixtures and cycles ─────────────────────────────────────────────────────────────────────────


def test_mixture_chooses_by_its_probabilities(getkey):
    """One kernel moves by less than a millionth, the other by much more."""
    target = skewed(2)
    kernel = inv.Mixture([inv.random_walk(target, 1e-7), inv.random_walk(target, 1.0)], [3, 1])
    assert kernel.probabilities.tolist() == [0.75, 0.25]
    start = kernel.init(jnp.zeros(2))
    _, info = step_each(kernel, jr.split(getkey(), 20_000), start)
    small = jnp.linalg.norm(info.proposal, axis=1) < 1e-5
    assert abs(float(small.mean()) - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / 20_000)


def test_cycle_applies_every_kernel(getkey):
    """One kernel moves the first coordinate, the other the second: a cycle moves both."""
    target = inv.targets.gaussian(2)
    first = inv.random_walk(target, jnp.array([0.1, 0.0]))
    second = inv.random_walk(target, jnp.array([0.0, 0.1]))
    kernel = inv.Cycle([first, second])
    keys, start = jr.split(getkey(), 200), kernel.init(jnp.ones(2))
    after, info = step_each(kernel, keys, start)
    moved = after.position != start.position[None]
    assert bool(jnp.any(moved[:, 0] & moved[:, 1]))
    assert bool(jnp.all(info.accepted == jnp.any(moved, axis=1)))
    densities = jax.jit(jax.vmap(target.log_density))(after.position)
    np.testing.assert_allclose(after.log_density, densities, rtol=1e-12)


def test_cycle_reports_a_fault_of_any_part(getkey):
    target = halfline(normal, jnp.nan)
    far, near = inv.random_walk(target, 50.0), inv.random_walk(target, 1e-9)
    kernel = inv.Cycle([far, near])
    start = kernel.init(-jnp.ones(2))
    _, info = step_each(kernel, jr.split(getkey(), 50), start)
    assert 10 < int(info.nonfinite.sum()) < 40 and bool(info.accepted.all())


# ── words for every bad input ───────────────────────────────────────────────────────────────────

TARGET, WALK = inv.targets.gaussian(2), RandomWalk(1.0, 2)
LAW = inv.standard_normal(2)
BAD = {
    "no target": (lambda: inv.Kernel(3, WALK, LAW), "target must be a Target, got int"),
    "no involution": (
        lambda: inv.Kernel(TARGET, fb.Identity((4,)), LAW),
        "involution must be a AbstractInvolution, got Identity",
    ),
    "no auxiliary": (
        lambda: inv.Kernel(TARGET, WALK, None),
        "auxiliary must be a AbstractDistribution, got NoneType",
    ),
    "sizes": (
        lambda: inv.Kernel(TARGET, WALK, inv.standard_normal(3)),
        r"state and auxiliary together, 2 \+ 3 coordinates, got 4",
    ),
    "a law of a matrix": (
        lambda: inv.Kernel(TARGET, WALK, Normal(jnp.zeros((2, 1)))),
        r"auxiliary must be a distribution of one vector, .* the state .* got shape \(2, 1\)",
    ),
    "guard": (
        lambda: inv.Kernel(TARGET, WALK, LAW, guard=0.0),
        "guard must be a positive tolerance, got 0.0",
    ),
    "position": (
        lambda: inv.random_walk(TARGET, 1.0).init(jnp.zeros(3)),
        r"a position must hold 2 numbers \(dim of gaussian\(2\)\), got 3",
    ),
    "scale": (
        lambda: inv.random_walk(TARGET, jnp.ones(3)),
        r"a number, a vector of 2 or a 2 x 2 matrix, got shape \(3,\)",
    ),
    "hmc scale": (
        lambda: inv.hmc(TARGET, 0.1, 3, scale=jnp.ones(3)),
        r"a number, a vector of 2 or a 2 x 2 matrix, got shape \(3,\)",
    ),
    "no steps": (lambda: inv.hmc(TARGET, 0.1, 0), "num_steps must be at least 1, got 0"),
    "small network": (
        lambda: inv.a_nice_mc(TARGET, fb.Identity((2,))),
        r"act on more than the target's 2 coordinates, got \(2,\)",
    ),
    "no kernels": (lambda: inv.Cycle([]), "at least one kernel, got none"),
    "no kernel": (lambda: inv.Cycle([TARGET]), "kernels must be kernels, got a Target"),
    "two targets": (
        lambda: inv.Cycle([inv.random_walk(TARGET, 1.0), inv.random_walk(skewed(3), 1.0)]),
        r"kernels must share one target, got targets of dimension \[2, 3\]",
    ),
    "probabilities": (
        lambda: inv.Mixture([inv.random_walk(TARGET, 1.0)], [0.5, 0.5]),
        r"probabilities must be 1 positive numbers, got \[0.5, 0.5\]",
    ),
    "zero chance": (
        lambda: inv.Mixture([inv.random_walk(TARGET, 1.0)] * 2, [1.0, 0.0]),
        r"probabilities must be 2 positive numbers, got \[1.0, 0.0\]",
    ),
    "NaN chance": (
        lambda: inv.Mixture([inv.random_walk(TARGET, 1.0)] * 2, [1.0, float("nan")]),
        "probabilities must be 2 positive numbers",
    ),
    "mixture means": (
        lambda: inv.GaussianMixture(jnp.ones(1), jnp.zeros(2), jnp.eye(2)),
        r"means must have shape \(k, dim\), got \(2,\)",
    ),
    "mixture covariances": (
        lambda: inv.GaussianMixture(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)),
        r"covariances must have shape \(1, 2, 2\), got \(2, 2\)",
    ),
    "no dimension": (lambda: inv.standard_normal(0), "dim must be at least 1, got 0"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("build", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_named(build, words):
    with pytest.raises(inv.InputError, match=words):
        build()


def test_the_normal_of_many_chains_is_the_standard_normal():
    """In its density, alone and mapped, and in ratios of it."""
    plain, x = inv.standard_normal(5), jr.normal(jr.key(0), (64, 5))
    many = for_many(plain)
    expected = plain.log_prob(x)
    np.testing.assert_allclose(jax.vmap(many.log_prob)(x), expected, rtol=1e-12)
    np.testing.assert_allclose(many.log_prob(x[0]), expected[0], rtol=1e-12)
    gain = jax.vmap(many.log_gain)(x, x[::-1])
    np.testing.assert_allclose(gain, expected - expected[::-1], atol=1e-12)


def test_a_kernel_made_for_many_makes_the_same_moves():
    kernel = inv.hmc(skewed(2), 0.7, 2)
    start = kernel.init(jnp.ones(2))
    expected, info = step_each(kernel, jr.split(jr.key(0), 64), start)
    found, many = step_each(for_many(kernel), jr.split(jr.key(0), 64), start)
    np.testing.assert_allclose(found.position, expected.position, rtol=1e-12)
    np.testing.assert_allclose(many.log_ratio, info.log_ratio, atol=1e-10)


def test_every_standard_normal_of_a_kernel_is_made_for_many():
    walk = inv.random_walk(skewed(2), 1.0)
    law = Transformed(inv.standard_normal(2), fb.Affine(jnp.ones(2)))
    kernel = for_many(inv.Cycle([walk, inv.Kernel(skewed(2), RandomWalk(1.0, 2), law)]))
    assert type(kernel.kernels[0].auxiliary) is ManyNormal
    assert type(kernel.kernels[1].auxiliary.base_dist) is ManyNormal
    assert for_many(StandardNormal()) == StandardNormal()  # not of one vector


def subclasses(cls):
    return {cls}.union(*(subclasses(c) for c in cls.__subclasses__()))


def test_a_step_is_a_move_by_what_was_drawn_in_every_kernel():
    """`step` is final; `draw` and `move` are what a kernel is."""
    from involutive.interop import blackjax as _  # noqa: F401  defines one more kernel

    ours = [c for c in subclasses(inv.AbstractKernel) if c.__module__.startswith("involutive")]
    assert len(ours) >= 6
    assert {c.step for c in ours} == {inv.AbstractKernel.step}
    assert inv.AbstractKernel.__abstractmethods__ >= {"draw", "move"}


def test_a_kernel_without_a_move_is_refused():
    class Half(inv.AbstractKernel):
        target: inv.Target
        initial: None = None

        def draw(self, key):
            return key

    with pytest.raises(TypeError, match="move"):
        Half(skewed(2))


def test_any_distribution_may_offer_its_own_gain():
    """A `log_gain` is used instead of two densities, whatever the class of the distribution."""

    class Shortcut(inv.standard_normal(2).__class__):
        def log_gain(self, new, old):
            return jnp.asarray(-jnp.inf)  # so that its use shows

    swap = inv.PermutationBlock.swap(4)
    plain = inv.Kernel(skewed(2), swap, StandardNormal((2,)))
    short = inv.Kernel(skewed(2), swap, Shortcut((2,)))
    start, pi = plain.init(jnp.ones(2)), jnp.array([0.3, -0.2])
    assert jnp.isfinite(plain.propose(start, pi).log_ratio)
    assert short.propose(start, pi).log_ratio == -jnp.inf
    assert plain.draw(jr.key(0))[1] is not None and short.draw(jr.key(0))[1] is None
