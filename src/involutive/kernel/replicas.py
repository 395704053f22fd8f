"""Replicas: a ladder of distributions from a reference to the target, exchanged by involutions.

Replica k of K + 1 has the density p_k ∝ q^{1-β_k} p^{β_k}, 0 = β_0 < … < β_K = 1, where q is a
normalised reference and p the target. One scan

1. draws the hot replica from q, exactly, and moves every other one by HMC or a random walk;
2. exchanges the neighbours (k, k+1) with k even in one scan and k odd in the next, by the function
   block (x, y) ↦ (g⁻¹(y), g(x)) on p_k(x) p_{k+1}(y); without a transport g that is the
   permutation block (x, y) ↦ (y, x). It is accepted with probability

       min(1, p_k(g⁻¹(y)) p_{k+1}(g(x)) |det Dg(x)| |det Dg⁻¹(y)| / (p_k(x) p_{k+1}(y))).

Even and odd pairs in turn make the way of a replica through the ladder non-reversible (Syed,
Bouchard-Côté, Deligiannidis, Doucet 2022): round trips per scan tend to 1/(2 + 2Λ), Λ the sum of
the rejection rates, however many replicas there are. With two replicas a scan is a local move and
an independence proposal from q.
"""

from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import on_device
from involutive.auxiliary import drawn, standard_normal
from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike
from involutive.involutions.blocks import FunctionBlock
from involutive.involutions.classical import Leapfrog, RandomWalk
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State, evaluate
from involutive.kernel.ladder import Ladder
from involutive.kernel.rungs import (
    Bridge,
    Noise,
    Replicas,
    Rungs,
    Scan,
    Vector,
    bridge,
    check_scales,
    check_schedule,
    log_reference,
    placed,
    rung_at,
    stacked,
)
from involutive.targets.target import Target

JITTER = 0.2  # relative, of every step size: no trajectory is periodic. Standard (Neal 2011, 3.2)


class Tempered(AbstractKernel):
    """Non-reversible parallel tempering from a reference to the target, in one kernel.

    The state's position is the cold replica, whose draws are the target's; the others are carried
    beside it. Nothing is adapted while the kernel is used: `adapt_ladder` does so before.

    Args:
        target: the density to leave invariant.
        reference: a normalised FlowJAX distribution with `sample` and `log_prob`.
        betas: the schedule, from 0 to 1, increasing.
        steps: step sizes of the local moves of replicas 1 … K, or one for all.
        scales: the scales of local moves: one number, `(K, dim)` standard deviations or
            `(K, dim, dim)` factors.
        leaps: leapfrog steps per local move; None makes a random-walk step, without gradients.
        transports: bijections g_0 … g_{K-1} of one structure, g_k from p_k to p_{k+1}, for learned
            exchanges; None exchanges positions as they are.
        scans: scans per step.
        initial: the distribution that cold replicas start from; by default the reference.
        ladders: `(n, K-1, dim)`, ladders; every chain starts its replicas, except the cold one,
            from a random one of them. By default they start from draws of the reference.
        warmup: steps that `sample` discards by default.
        ladder: the measurements of the adaptation.

    Raises:
        InputError: if `target` is no `Target`, the reference is no distribution of its coordinates,
            `betas` do not increase from 0 to 1, `scales` or `transports` do not fit the replicas,
            or a number of leaps, scans or steps is too small.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> from flowjax.distributions import Normal
        >>> wide = Normal(jnp.zeros(2), 5 * jnp.ones(2))
        >>> kernel = inv.Tempered(inv.targets.mog6(), wide, betas=[0, 0.05, 0.25, 1], steps=0.5)
        >>> inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """

    target: Target
    initial: AbstractDistribution | None
    reference: AbstractDistribution
    betas: Float[Array, " replicas"]
    steps: Float[Array, " moved"]
    scales: Float[Array, "moved ..."]
    exchange: FunctionBlock | None  # of all pairs, stacked
    auxiliary: AbstractDistribution
    ladders: Float[Array, "n inner dim"] | None
    ladder: Ladder | None
    leaps: int | None = eqx.field(static=True)
    scans: int = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def __init__(
        self,
        target: Target,
        reference: AbstractDistribution,
        betas: ArrayLike,
        steps: ArrayLike = 0.1,
        scales: ArrayLike = 1.0,
        *,
        leaps: int | None = 8,
        transports: Sequence[AbstractBijection] | None = None,
        scans: int = 1,
        initial: AbstractDistribution | None = None,
        ladders: ArrayLike | None = None,
        warmup: int = 0,
        ladder: Ladder | None = None,
    ):
        check(isinstance(target, Target), f"target must be a Target, got {type(target).__name__}")
        schedule = check_schedule(target, reference, betas)
        moved, dtype = schedule.size - 1, jnp.result_type(float)
        self.target, self.reference = target, reference
        self.initial = reference if initial is None else initial
        self.betas = on_device(schedule.astype(dtype))
        self.steps = on_device(np.broadcast_to(np.asarray(steps, dtype), (moved,)).copy())
        self.scales = on_device(check_scales(scales, moved, target.dim).astype(dtype))
        self.exchange = None if transports is None else stacked(transports, moved)
        self.auxiliary = standard_normal(target.dim)
        self.ladders = None if ladders is None else jnp.asarray(ladders, dtype)
        self.leaps = None if leaps is None else check_count("leaps", leaps)
        self.scans, self.warmup = check_count("scans", scans), check_count("warmup", warmup, 0)
        self.ladder = ladder

    @property
    def num_replicas(self) -> int:
        """How many replicas there are, the hot and the cold one included."""
        return self.betas.shape[0]

    def repeated(self, scans: int) -> "Tempered":
        """The same ladder with that many scans per step."""
        made = Tempered(
            self.target, self.reference, self.betas, self.steps, self.scales, leaps=self.leaps,
            scans=scans, initial=self.initial, ladders=self.ladders,
            warmup=-(-self.warmup * self.scans // scans), ladder=self.ladder,
        )  # fmt: skip
        return eqx.tree_at(lambda m: m.exchange, made, self.exchange, is_leaf=lambda x: x is None)

    @property
    def evaluations_per_step(self) -> int:
        """Density evaluations per step; a gradient counts as three."""
        moved, swapped = self.num_replicas - 1, self.exchange is not None
        local = 2 if self.leaps is None else 3 * (self.leaps + 1) + 1
        return self.scans * (moved * (local + 2 * swapped) + 1)

    def carry(self, position: Vector, key: Key[Array, ""] | None = None) -> Replicas:
        """Start the replicas by an adapted ladder or the reference; without a key at `position`."""
        inner = self.num_replicas - 2
        here = jnp.broadcast_to(position[None], (inner, position.size))
        positions = here if key is None else self._started(key, here).astype(position.dtype)
        log_target = jax.vmap(lambda x: evaluate(self.target, x))(positions)
        outside = ~jnp.isfinite(log_target)
        positions = jnp.where(outside[:, None], here, positions)
        log_target = jnp.where(outside, evaluate(self.target, position), log_target)
        log_q = jax.vmap(lambda x: log_reference(self, x))(positions)
        tags = jnp.zeros(inner + 2, jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        return Replicas(positions, log_target, log_q, tags, zero, zero)

    def _started(self, key: Key[Array, ""], here: Array) -> Array:
        if self.ladders is not None:
            return self.ladders[jr.randint(key, (), 0, self.ladders.shape[0])]
        return jax.vmap(self.reference.sample)(jr.split(key, len(here)))

    def draw(self, key: Key[Array, ""]) -> Noise:
        """Everything random in a step; with several scans per step, one row for each."""
        if self.scans == 1:
            return self.draw_scan(key)
        return jax.vmap(self.draw_scan)(jr.split(key, self.scans))

    def draw_scan(self, key: Key[Array, ""]) -> Noise:
        key_hot, key_momenta, key_stretch, key_levels, key_swaps = jr.split(key, 5)
        moved, dtype = self.num_replicas - 1, self.betas.dtype
        hot = jnp.asarray(drawn(self.reference, key_hot), dtype)
        momenta = jax.vmap(lambda k: drawn(self.auxiliary, k))(jr.split(key_momenta, moved))
        return Noise(
            hot=hot,
            log_hot=log_reference(self, hot),
            momenta=momenta,
            stretch=jr.uniform(key_stretch, (moved,), dtype, 1 - JITTER, 1 + JITTER),
            levels=jr.exponential(key_levels, (moved,), dtype),
            swap_levels=jr.exponential(key_swaps, (moved,), dtype),
        )

    def move(self, noise: Noise, state: State) -> tuple[State, Info]:
        """Make one step: `scans` scans. A chain that met a density of +inf stays where it is.

        Raises:
            InputError: if the state does not carry replicas, as one made by `init` does.
        """
        check(
            isinstance(state.carried, Replicas),
            "a tempered kernel moves a state made by its own init, got one without replicas; "
            "sample with inv.sample",
        )
        if self.scans == 1:
            new, scan = self.scan(noise, state)
        else:
            new, rows = jax.lax.scan(lambda s, n: self.scan(n, s), state, noise)
            scan = jax.tree.map(lambda leaf: leaf[-1], rows)._replace(
                moved=jnp.any(rows.moved), nonfinite=jnp.any(rows.nonfinite),
                stopped=jnp.any(rows.stopped),
            )  # fmt: skip
        was = jnp.isposinf(state.log_density)
        new = jax.tree.map(lambda after, before: jnp.where(was, before, after), new, state)
        density = jnp.where(scan.stopped | was, jnp.inf, new.log_density)
        rate = jnp.where(was, 0.0, scan.local_rate[-1])
        info = Info(
            scan.proposal, scan.log_ratio, scan.moved & ~was, rate, scan.nonfinite, jnp.array(False)
        )
        return new._replace(log_density=density), info

    def scan(self, noise: Noise, state: State) -> tuple[State, Scan]:
        """Move every replica and exchange every other pair of neighbours."""
        old: Replicas = state.carried
        cold_q = log_reference(self, state.position)
        rungs = Rungs(
            jnp.concatenate([old.positions, state.position[None]]),
            jnp.concatenate([old.log_target, state.log_density[None]]),
            jnp.concatenate([old.log_reference, cold_q[None]]),
        )
        rungs, infos, stopped = jax.vmap(self._local)(
            self.betas[1:], self.steps * noise.stretch, self.scales, noise.momenta, noise.levels,
            rungs,
        )  # fmt: skip
        hot = Rungs(noise.hot, evaluate(self.target, noise.hot), noise.log_hot)
        rungs = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), hot, rungs)
        active = jnp.arange(self.num_replicas - 1) % 2 == old.parity
        after, tags, rates, swapped = self.swap(noise.swap_levels, active, rungs, old.tags)
        tags = tags.at[-1].set(jnp.where(tags[-1] == 1, 2, tags[-1]))
        trips = old.trips + (tags[0] == 2)
        replicas = Replicas(
            after.positions[1:-1],
            after.log_target[1:-1],
            after.log_reference[1:-1],
            tags.at[0].set(1),
            trips,
            1 - old.parity,
        )
        seen = Scan(
            proposal=infos.proposal[-1],
            log_ratio=infos.log_ratio[-1],
            local_rate=infos.acceptance_rate,
            swap_rate=rates,
            log_weights=rungs.log_target - rungs.log_reference,
            moved=infos.accepted[-1] | swapped[-1],
            nonfinite=jnp.any(infos.nonfinite) | jnp.isnan(hot.log_target),
            stopped=jnp.any(stopped) | jnp.isposinf(hot.log_target),
        )
        return State(after.positions[-1], after.log_target[-1], replicas), seen

    def _local(
        self, beta: Array, step: Array, scale: Array, momentum: Array, level: Array, rung: Rungs
    ) -> tuple[Rungs, Info, Array]:
        """The local move of one replica by the one ratio, with both densities where it ends."""
        density = Bridge(self.target.log_density, self.reference, beta)
        target = eqx.tree_at(lambda t: t.log_density, self.target, density)
        dim, where = self.target.dim, rung.positions
        flow = (
            RandomWalk(step * scale, dim) if self.leaps is None
            else Leapfrog(target, step, scale, self.leaps)
        )  # fmt: skip
        now = State(where, bridge(beta, rung.log_target, rung.log_reference))
        new, info = Kernel(target, flow, self.auxiliary).move((momentum, None, level), now)
        at = info.proposal
        proposed = rung_at(self, at)
        kept = jax.tree.map(lambda a, b: jnp.where(info.accepted, a, b), proposed, rung)
        return kept, info, jnp.isposinf(new.log_density)

    def swap(
        self, levels: Array, active: Array, rungs: Rungs, tags: Array
    ) -> tuple[Rungs, Array, Array, Array]:
        """Exchange active pairs; return replicas, tags, every pair's rate and what was done."""
        below, above = (jax.tree.map(lambda x, s=s: x[s], rungs) for s in (np.s_[:-1], np.s_[1:]))
        low, high, log_det = self._exchanged(below, above)
        beta = self.betas
        log_ratio = log_det + sum(
            bridge(b, new.log_target, new.log_reference)
            - bridge(b, old.log_target, old.log_reference)
            for b, new, old in ((beta[:-1], low, below), (beta[1:], high, above))
        )
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        swapped = active & (-levels < log_ratio)
        rungs = jax.tree.map(lambda a, b, c: placed(swapped, a, b, c), low, high, rungs)
        tags = placed(swapped, tags[1:], tags[:-1], tags)
        return rungs, tags, jnp.exp(jnp.minimum(log_ratio, 0.0)), swapped

    def _exchanged(self, below: Rungs, above: Rungs) -> tuple[Rungs, Rungs, Array]:
        """Both members of every pair after the exchange, with its log-determinant."""
        if self.exchange is None:
            return above, below, jnp.zeros_like(below.log_target)
        pairs = jnp.concatenate([below.positions, above.positions], axis=1)
        moved, log_det = eqx.filter_vmap(lambda f, z: f(z))(self.exchange, pairs)
        dim, evaluated = self.target.dim, jax.vmap(partial(rung_at, self))
        low, high = (evaluated(moved[:, part]) for part in (np.s_[:dim], np.s_[dim:]))
        return low, high, log_det
