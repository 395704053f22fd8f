"""Exact draws in, k steps, the same law out; and planted bugs that the same test must catch.

`faults` is the one test: it compares the law after k steps with fresh exact draws (two-sample
Kolmogorov-Smirnov on coordinates, squares and projections; z-scores of first and second moments),
and asks that every value is finite and that chains moved and did not come back to their start, as
the identity and a kernel of period two would.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
import scipy.stats
from flowjax import bijections as fb
from flowjax.distributions import StandardNormal
from jaxtyping import Array, Key

import involutive as inv
from involutive.bijections.couplings import mlp
from involutive.involutions.rotations import Rotation, Rotations
from involutive.kernel.classical import a_nice_network
from involutive.kernel.kernel import AbstractKernel, Kernel, Proposed, State, settle
from zoo import additive, bent, spline

CHAINS, STEPS, BLOCK = 100_000, 12, 1000
LEVEL = 1e-4  # chance that a right kernel fails, over all statistics together

Step = Callable[[Any, Key[Array, ""], State], tuple[State, Any]]


class Case(NamedTuple):
    """A kernel, how it steps, how its chains get their keys, and exact draws of its target."""

    kernel: AbstractKernel
    step: Step = lambda kernel, key, state: kernel.step(key, state)
    keys: Callable[[Key[Array, ""], int], Array] = jr.split
    draw: Callable[[Key[Array, ""], int], Array] | None = None

    def exact(self, key: Key[Array, ""], n: int) -> Array:
        draw = self.draw or self.kernel.target.sample
        assert draw is not None
        return draw(key, n)


class Seen(NamedTuple):
    """Chains from begin to end, and the target's density where they ended."""

    begin: Array
    end: State
    densities: Array
    acceptance: Array


@eqx.filter_jit
def after(case: Case, starts: Array, key: Key[Array, ""], steps: int) -> Seen:
    """Where chains begin and end, and the density there; few at a time, which caches like."""

    def run(start: Array, bits: Array) -> Seen:
        def move(state: State, bits: Array) -> tuple[State, Array]:
            state, info = case.step(case.kernel, jr.wrap_key_data(bits), state)
            return state, info.accepted

        begin = case.kernel.init(start)
        end, accepted = jax.lax.scan(move, begin, bits)
        density = case.kernel.target.log_density(end.position)
        return Seen(begin.position, end, density, jnp.mean(accepted))

    def keys(t: Array) -> Array:  # as bits, since a loop may not hand a key to another one
        return jr.key_data(case.keys(jr.fold_in(key, t), len(starts)))

    bits = jax.vmap(keys, out_axes=1)(jnp.arange(steps))
    blocks = jax.tree.map(lambda x: x.reshape(-1, BLOCK, *x.shape[1:]), (starts, bits))
    seen = jax.lax.map(lambda block: jax.vmap(run)(*block), blocks)
    seen = jax.tree.map(lambda x: x.reshape(len(starts), *x.shape[2:]), seen)
    return seen._replace(acceptance=jnp.mean(seen.acceptance))


def statistics(x: np.ndarray, turns: int) -> Iterator[np.ndarray]:
    """Coordinates, their squares and products, and fixed projections, one at a time."""
    columns = np.ascontiguousarray(x.T)
    directions = np.random.default_rng(0).normal(size=(turns, len(columns)))
    for column in columns:
        yield column
        yield column**2
        yield column * columns[0]
    for direction in directions:
        yield direction @ columns


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sample p-value of sorted values by its limit law, for laws without atoms.

    Between two values of `a` its share does not change, so the gap is largest just at one or
    just before one; `scipy.stats.ks_2samp` finds the same in ten times as long.
    """
    share, n = np.searchsorted(b, a) / len(b), len(a)
    most = max(np.abs(np.arange(i, n + i) / n - share).max() for i in (0, 1))
    return float(scipy.special.kolmogorov(most * np.sqrt(n * len(b) / (n + len(b)))))


def p_values(samples: list[np.ndarray], fresh: np.ndarray, turns: int = 4) -> np.ndarray:
    """One p-value a statistic from Kolmogorov-Smirnov, and one from the difference of means.

    A row for each of the samples; what they are compared with is sorted once for all of them.
    """
    found: list[list[float]] = [[] for _ in samples]
    each = zip(*(statistics(x, turns) for x in (fresh, *samples)), strict=True)
    for b, *values in each:
        b = np.sort(b)
        for row, a in zip(found, values, strict=True):
            z = (a.mean() - b.mean()) / np.sqrt(a.var() / len(a) + b.var() / len(b))
            row += [kolmogorov_smirnov(np.sort(a), b), 2 * scipy.stats.norm.sf(abs(z))]
    return np.array(found)


class Verdict(NamedTuple):
    """What is wrong, and the smallest p-value times how many there are."""

    faults: list[str]
    least_p: float


def faults(case: Case, chains: int = CHAINS, steps: int = STEPS, seed: int = 0) -> list[str]:
    """What is wrong with a kernel: nothing, if it leaves its target invariant and moves."""
    return judge(case, chains, steps, seed).faults


def judge(case: Case, chains: int, steps: int, seed: int) -> Verdict:
    """Compare with twice as many exact draws, along four projections."""
    return judge_all([case], chains, steps, seed)[0]


def judge_all(
    cases: list[Case], chains: int, steps: int, seed: int, fresh: int = 2, turns: int = 4
) -> list[Verdict]:
    """Compare kernels of one target with the same `fresh` times as many exact draws."""
    key_start, key_run, key_fresh = jr.split(jr.key(seed), 3)
    starts, draws = (
        cases[0].exact(k, n) for k, n in ((key_start, chains), (key_fresh, fresh * chains))
    )
    seen = [jax.tree.map(np.asarray, after(case, starts, key_run, steps)) for case in cases]
    p = p_values([one.end.position for one in seen], np.asarray(draws), turns)
    return [verdict(*one) for one in zip(seen, p, strict=True)]


def verdict(seen: Seen, p: np.ndarray) -> Verdict:
    """What the ends of the chains, and the p-values of their law, say about a kernel."""
    end, kept = seen.end.position, seen.end.log_density
    if not (np.isfinite(end).all() and np.isfinite(kept).all()):
        return Verdict(["not finite"], 0.0)
    found = []
    if p.min() * p.size < LEVEL:
        found.append(f"another law: p = {p.min():.1e}")
    if not np.allclose(seen.densities, kept, atol=1e-6):
        found.append("a density that is not the position's")
    if np.mean(np.abs(end - seen.begin).max(1) > 1e-6) < 0.1:
        found.append(f"no movement: acceptance {float(seen.acceptance):.2f}")
    return Verdict(found, float(min(p.min() * p.size, 1.0)))


# ── kernels that are right ──────────────────────────────────────────────────────────────────────


@cache
def lopsided() -> inv.Target:
    """Two overlapping Gaussians of unlike weight: no symmetry that could hide a fault."""
    return inv.targets.mixture([[-1.0, 0.0], [1.5, 1.0]], [0.3, 0.7], sd=0.8, name="lopsided")


def near() -> inv.GaussianMixture:
    """A mixture near the target, not equal to it: acceptance is high and matters."""
    means = jnp.array([[-1.0, 0.3], [1.2, 1.0]])
    return inv.GaussianMixture(jnp.array([0.5, 0.5]), means, jnp.stack([jnp.eye(2)] * 2))


def walk() -> Kernel:
    return inv.random_walk(lopsided(), jnp.array([1.2, 1.6]))


def independent() -> Kernel:
    """A function block whose auxiliary law proposes: φ' = g⁻¹(π)."""
    return Kernel(lopsided(), inv.FunctionBlock(additive(2)(jr.key(2))), near())


def stretched() -> Kernel:
    """The same with a g that changes volume from place to place."""
    return Kernel(lopsided(), inv.FunctionBlock(bent(2)), near())


def truncated() -> Case:
    """A target that is NaN beyond a line; the exact law is the truncated one."""
    base = lopsided()
    target = inv.Target(
        lambda x: jnp.where(x[0] > 1.0, jnp.nan, base.log_density(x)), 2, name="truncated"
    )

    def draw(key: Key[Array, ""], n: int) -> Array:
        x = base.sample(key, 4 * n)
        return x[jnp.argsort(x[:, 0] > 1.0, stable=True)][:n]

    return Case(inv.random_walk(target, 1.5), draw=draw)


def paper(**settings: Any) -> Kernel:
    network = inv.paper_network(4, 2, 4, last_scale=0.3)
    return Kernel(lopsided(), network, inv.standard_normal(4), **settings)


def orbit() -> AbstractKernel:
    """A random element of a group that the target does not have: exchange, flip and rotations."""
    planes = np.array([[1.0, 0.4], [0.2, 0.8]])
    rotations = [
        Rotation(np.array([0.3, -0.5]), planes, np.linalg.inv(planes), np.ones(1)),
        Rotation(np.array([-0.4, 0.2]), np.eye(2), np.eye(2), np.ones(1)),
    ]
    group = inv.Symmetries(2, [[[0], [1]]], [[True, False]], Rotations(2, rotations))
    return inv.SymmetryMove(lopsided(), group)


def one_order(kernel, key, state):
    """Flips always before the exchange: the inverse of an element has another chance."""
    noise = kernel.draw(key)
    return kernel.move(noise._replace(flips_first=jnp.array(True)), state)


def conditional() -> Kernel:
    """Metropolis-Hastings whose proposal has its mean and its scale from the state."""
    law = inv.ConditionalNormal(lambda x: 0.5 * x + 0.3, lambda x: 0.5 * jnp.tanh(x) - 0.1, 2)
    return inv.metropolis_hastings(lopsided(), law)


def several_tries() -> Kernel:
    """The chosen one of three tries around half of the state."""
    law = inv.ConditionalNormal(lambda x: 0.5 * x + 0.3, lambda x: 0.3 * jnp.tanh(x) - 0.3, 2)
    return inv.multiple_try(lopsided(), law, tries=3)


def persistent() -> inv.Persistent:
    """HMC of one leap with a momentum that is refreshed in part."""
    return inv.Persistent(inv.hmc(lopsided(), 0.9, 1), memory=0.8)


RIGHT: dict[str, Callable[[], Case]] = {
    "proposal that depends on the state": lambda: Case(conditional()),
    "multiple-try": lambda: Case(several_tries()),
    "persistent momentum": lambda: Case(persistent()),
    "random walk": lambda: Case(walk()),
    "hmc": lambda: Case(inv.hmc(lopsided(), 0.7, 3, scale=jnp.array([1.2, 0.8]))),
    "a-nice-mc": lambda: Case(
        inv.a_nice_mc(lopsided(), a_nice_network(jr.key(3), 2, make=mlp(16)))
    ),
    "paper network, untrained": lambda: Case(paper()),
    "paper network, guarded": lambda: Case(paper(guard=1e-9)),
    "paper network, on the lattice": lambda: Case(
        Kernel(
            lopsided(),
            inv.lattice(inv.paper_network(4, 2, 4, last_scale=0.3)),
            inv.standard_normal(4),
        )
    ),
    "function block and mixture": lambda: Case(independent()),
    "function block that changes volume": lambda: Case(stretched()),
    "spline conjugate": lambda: Case(
        Kernel(
            lopsided(),
            inv.Conjugate(spline(4)(jr.key(6)), inv.PermutationBlock.swap(4)),
            near(),
        )
    ),
    "mixture of kernels": lambda: Case(inv.Mixture([walk(), stretched()], [0.4, 0.6])),
    "cycle of kernels": lambda: Case(inv.Cycle([stretched(), walk()])),
    "NaN beyond a line": truncated,
    "symmetries that do not hold": lambda: Case(orbit()),
}


SLOW = ("paper network, guarded", "spline conjugate", "mixture of kernels", "cycle of kernels")


def fast(name):
    """A case, in the deep suite if it takes long to compile and its parts are tested here."""
    return pytest.param(RIGHT[name], marks=pytest.mark.deep if name in SLOW else (), id=name)


@pytest.mark.parametrize("make", [fast(name) for name in RIGHT])
def test_leaves_its_target_invariant_and_moves(make):
    assert faults(make()) == []


# ── planted bugs ────────────────────────────────────────────────────────────────────────────────


def decide(key: Key[Array, ""], state: State, proposal: Proposed) -> tuple[State, Any]:
    """Accept a proposal with probability `min(1, exp(log_ratio))`."""
    return settle(jr.exponential(key, dtype=proposal.log_ratio.dtype), state, proposal)


def ratio_bug(change: Callable[..., Array]) -> Step:
    """A step whose log ratio is changed; `change(kernel, state, π, proposal, log_det, key)`."""

    def step(kernel: Kernel, key: Key[Array, ""], state: State) -> tuple[State, Any]:
        key_auxiliary, key_accept, key_other = jr.split(key, 3)
        v = kernel.draw_auxiliary(key_auxiliary, state.position)
        proposal = kernel.propose(state, v)
        _, log_det = kernel.involution(jnp.concatenate([state.position, v]))
        wrong = change(kernel, state, v, proposal, log_det, key_other)
        return decide(key_accept, state, proposal._replace(log_ratio=wrong))

    return step


def stale(kernel, state, v, p, log_det, key):
    """The density of the auxiliary of the step before, which was refreshed since."""
    before = kernel.auxiliary.sample(key)
    return p.log_ratio + kernel.auxiliary.log_prob(v) - kernel.auxiliary.log_prob(before)


def without_auxiliary(kernel, state, v, p, log_det, key):
    law = kernel.auxiliary
    return p.log_ratio - law.log_prob(p.auxiliary) + law.log_prob(v)


def stale_condition(kernel, state, v, p, log_det, key):
    """The way back is drawn at the state that was left: Y(π'|φ) for Y(π'|φ')."""
    law = kernel.auxiliary
    right = law.log_prob(p.auxiliary, condition=p.state.position)
    return p.log_ratio - right + law.log_prob(p.auxiliary, condition=state.position)


def condition_ahead(kernel, state, v, p, log_det, key):
    """The way there is taken as drawn at the proposal: Y(π|φ') for Y(π|φ)."""
    law = kernel.auxiliary
    right = law.log_prob(v, condition=state.position)
    return p.log_ratio + right - law.log_prob(v, condition=p.state.position)


def as_one_try(kernel, state, v, p, log_det, key):
    """The ratio of a single try: neither the other tries nor the reference points count."""
    new, q = p.state, kernel.auxiliary.proposal.log_prob
    there = q(new.position, condition=state.position)
    back = q(state.position, condition=new.position)
    return new.log_density - state.log_density + back - there


def momentum_of_the_rejected(kernel, key, state):
    """A rejected move keeps the momentum it would have had, where φ stays."""
    noise = kernel.draw(key)
    new, info = kernel.move(noise, state)
    share = jnp.where(state.carried.begun, kernel.memory, 0.0)
    v = share * state.carried.value + jnp.sqrt(1 - share**2) * noise[0]
    proposed = kernel.kernel.propose(state, v).auxiliary
    return new._replace(carried=new.carried._replace(value=-proposed)), info


def stale_density(kernel, key, state):
    """The state's density is the proposal's, also when that was rejected."""
    new, info = kernel.step(key, state)
    density = kernel.target.log_density(info.proposal)
    return State(new.position, density), info


def nan_kept(kernel, key, state):
    """Accept unless the ratio is smaller than u: a comparison with NaN is false."""
    key_auxiliary, key_accept, key_info = jr.split(key, 3)
    p = kernel.propose(state, kernel.auxiliary.sample(key_auxiliary))
    ratio = p.state.log_density - state.log_density
    kept = ~(ratio < -jr.exponential(key_accept))
    _, info = decide(key_info, state, p)
    position = jnp.where(kept, p.state.position, state.position)
    return State(position, jnp.where(kept, p.state.log_density, state.log_density)), info


def not_refreshed(kernel, key, state):
    """One auxiliary, drawn once and kept for every step."""
    return decide(key, state, kernel.propose(state, jnp.array([0.6, -0.4])))


def tuned_on_the_way(kernel, key, state):
    """A step size that follows the position, as adaptation during sampling does."""
    scale = 0.3 + jnp.abs(state.position[0])
    return eqx.tree_at(lambda k: k.involution.scale, kernel, scale).step(key, state)


def one_key(key: Key[Array, ""], n: int) -> Array:
    """The same key for every chain."""
    data = jr.key_data(key)
    return jr.wrap_key_data(jnp.broadcast_to(data[None], (n, *data.shape)))


class OfFour(inv.AbstractInvolution):
    """A map of two coordinates of the state and two auxiliary ones that keeps volumes."""

    @property
    def size(self) -> int:
        return 4

    @property
    def volume_preserving(self) -> bool:
        return True


class Forward(OfFour):
    """`swap ∘ g`, where the way back g⁻¹ was forgotten: not an involution."""

    g: fb.AbstractBijection

    def __call__(self, z: Array) -> tuple[Array, Array]:
        return jnp.roll(self.g.transform(z), 2), jnp.zeros(())


class Unflipped(OfFour):
    """`φ ↦ φ + |π|, π ↦ π`: the sign is not turned, so no step leads back."""

    def __call__(self, z: Array) -> tuple[Array, Array]:
        return jnp.concatenate([z[:2] + jnp.abs(z[2:]), z[2:]]), jnp.zeros(())


class Mirror(OfFour):
    """`φ ↦ -φ`: on a symmetric target always accepted, and of period two."""

    def __call__(self, z: Array) -> tuple[Array, Array]:
        return jnp.concatenate([-z[:2], z[2:]]), jnp.zeros(())


BUGS: dict[str, Callable[[], Case]] = {
    "stale condition": lambda: Case(conditional(), ratio_bug(stale_condition)),
    "tries at the state that was left": lambda: Case(several_tries(), ratio_bug(stale_condition)),
    "several tries taken for one": lambda: Case(several_tries(), ratio_bug(as_one_try)),
    "condition ahead of its time": lambda: Case(conditional(), ratio_bug(condition_ahead)),
    "momentum of a rejected move": lambda: Case(persistent(), momentum_of_the_rejected),
    "stale auxiliary density": lambda: Case(independent(), ratio_bug(stale)),
    "log-det dropped": lambda: Case(
        stretched(), ratio_bug(lambda k, s, v, p, log_det, key: p.log_ratio - log_det)
    ),
    "log-det of the wrong sign": lambda: Case(
        stretched(), ratio_bug(lambda k, s, v, p, log_det, key: p.log_ratio - 2 * log_det)
    ),
    "log ratio times 1.1": lambda: Case(
        walk(), ratio_bug(lambda k, s, v, p, *_: 1.1 * p.log_ratio)
    ),
    "ratio inverted": lambda: Case(walk(), ratio_bug(lambda k, s, v, p, *_: -p.log_ratio)),
    "auxiliary density omitted": lambda: Case(independent(), ratio_bug(without_auxiliary)),
    "new auxiliary density omitted": lambda: Case(
        independent(),
        ratio_bug(lambda k, s, v, p, *_: p.log_ratio - k.auxiliary.log_prob(p.auxiliary)),
    ),
    "density at the old point": lambda: Case(
        independent(),
        ratio_bug(lambda k, s, v, p, *_: p.log_ratio - p.state.log_density + s.log_density),
    ),
    "always accepted": lambda: Case(walk(), ratio_bug(lambda k, s, v, p, *_: jnp.zeros(()))),
    "accepted only uphill": lambda: Case(
        walk(), ratio_bug(lambda k, s, v, p, *_: jnp.where(p.log_ratio > 0, 0.0, -jnp.inf))
    ),
    "logarithm of u forgotten": lambda: Case(
        walk(),
        ratio_bug(
            lambda k, s, v, p, _, key: jnp.where(jr.uniform(key) < p.log_ratio, 0.0, -jnp.inf)
        ),
    ),
    "density kept from a rejected proposal": lambda: Case(walk(), stale_density),
    "NaN kept": lambda: truncated()._replace(step=nan_kept),
    "auxiliary not refreshed": lambda: Case(walk(), not_refreshed),
    "step size follows the position": lambda: Case(
        inv.random_walk(lopsided(), 1.0), tuned_on_the_way
    ),
    "one key for all chains": lambda: Case(walk(), keys=one_key),
    "way back forgotten": lambda: Case(Kernel(lopsided(), Forward(additive(4)(jr.key(2))), near())),
    "direction not flipped": lambda: Case(Kernel(lopsided(), Unflipped(), StandardNormal((2,)))),
    "period two": lambda: Case(Kernel(inv.targets.gaussian(2), Mirror(), StandardNormal((2,)))),
    "inverse of a symmetry less likely": lambda: Case(orbit(), one_order),
    "never moves": lambda: Case(walk(), ratio_bug(lambda k, s, v, p, *_: jnp.full((), -jnp.inf))),
}


@pytest.mark.parametrize("make", BUGS.values(), ids=BUGS)
def test_planted_bug_is_caught(make):
    assert faults(make()) != []


def test_there_are_enough_planted_bugs():
    assert len(BUGS) >= 12


def test_the_size_has_power():
    """At this size a standard deviation 2% off is seen, and a mean 0.02 of it off."""
    x = np.random.default_rng(1).normal(size=(CHAINS, 2))
    fresh = np.random.default_rng(2).normal(size=(2 * CHAINS, 2))
    assert p_values([x], fresh).min() * 18 > LEVEL
    assert p_values([1.02 * x], fresh).min() * 18 < LEVEL
    assert p_values([x + 0.025], fresh).min() * 18 < LEVEL
