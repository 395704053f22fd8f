"""The evidence: log Z = log ∫ p of an unnormalised density p, from a proposal q that is normalised.

From q's side, importance sampling: Z = E_q[w] with w = p/q. From both sides, the optimal bridge
(Meng and Wong, 1996): with n draws of q, m effective draws of chains and s = m/(n + m),

    Z = E_q[w / (s w + (1 - s) Z)] / E_p[1 / (s w + (1 - s) Z)],

iterated to its fixed point. Its error is that of both means, the chains' by their autocorrelation.
Neither sees a mode that both q and the chains miss, so `coverage` searches for mass outside q.
If the estimates disagree, or mass was found outside, log Z is withheld.
"""

import time
from typing import NamedTuple

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity, BatchedDistribution
from involutive._xla.compilation import jit_once
from involutive.core.errors import InputError, check, check_count
from involutive.core.keys import KeyLike, as_key, generator, split
from involutive.core.statistics import pareto_k, rhat
from involutive.diagnostics.coverage import MissedMass, missed
from involutive.diagnostics.estimators import beyond, bridge, effective_share, importance
from involutive.diagnostics.measured import Estimate, Evidence
from involutive.kernel.classical import random_walk
from involutive.kernel.composite import Cycle
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.kernel.proposals import proposal_distribution
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample

CHAINS = 64  # that are run where no draws are given; a guess
WIDE = 3.0  # sd of the points that climbs start from beside q: `learn`'s default X
LARGEST_K = 0.7  # standard: Vehtari et al. (2024)
LARGEST_TERM_RHAT = 1.05  # of the bridge's term over chains; a guess
LEAST_SIZE = 100.0  # effective draws of q, below which a mean weight has no known error; a guess
APART = 4.0  # standard errors between the two estimates; a guess
UNSEEN = 0.01  # share of the chains' draws above every weight of q's draws; a guess
OUTSIDE = 0.002  # share of Z outside q that is named, however large the error; a guess


def evidence(
    kernel: AbstractKernel,
    *,
    key: KeyLike,
    draws: Draws | None = None,
    num_samples: int = 20_000,
    progress: bool | None = None,
) -> Evidence:
    """Estimate log Z, the log of the integral of the target, with its error.

    Args:
        kernel: a kernel whose proposal has a known density q, as `learn` makes it.
        key: an int seed or a JAX key.
        draws: draws of the same target from `sample`; by default, chains run here.
        num_samples: number of draws of q, and about that of the chains if they run here.
        progress: show a progress bar for the chains; by default on a terminal.

    Returns:
        `log_z` with `error`, an interval from `lower` to `upper`, and whether it is `trustworthy`.

    Raises:
        InputError: if no proposal density is known, or draws are of another target.

    Example:
        ```python
        import involutive as inv

        kernel = inv.learn(inv.targets.mog6(), key=0)
        result = inv.evidence(kernel, key=1)
        print(result)
        ```
    """
    began = time.perf_counter()
    check(isinstance(kernel, AbstractKernel), f"kernel must be a kernel, got {type(kernel)}")
    check_count("num_samples", num_samples, least=100)
    law = _known_proposal(kernel)
    _check_draws(draws, kernel)
    key_q, key_chains, key_probe = split(as_key(key), 3)
    p, q = BatchedDensity(kernel.target.log_density, kernel.target.dim), BatchedDistribution(law)
    drawn, forward = _weighted_draws(p, law, key_q, num_samples)
    own = draws is None
    if draws is None:
        inside = drawn[np.isfinite(forward)]  # where chains can start
        draws = _chains(kernel, key_chains, inside, num_samples, progress)
    backward = _log_weights_of_chains(q, draws)
    important, joined = _estimates(p, draws, forward, backward)
    outside = _mass_outside(kernel, law, p, drawn, important, float(np.max(forward)), key_probe)
    verdict = _Verdict(forward, backward, important, joined, outside)
    evaluations = p.evaluations + (draws.log_density.size if own else 0)
    return Evidence(
        log_z=joined.log_z if not verdict.withheld() else float("nan"),
        error=joined.error,
        pareto_k=pareto_k(forward),
        effective_share=effective_share(forward),
        importance=important,
        bridge=joined,
        reasons=tuple(verdict.withheld() + verdict.doubts()),
        marginal=kernel.target.has_prior,
        target=kernel.target.name,
        num_samples=num_samples,
        evaluations=int(evaluations),
        seconds=time.perf_counter() - began,
    )


def _known_proposal(kernel: AbstractKernel) -> AbstractDistribution:
    law = proposal_distribution(kernel)
    if law is None:
        learned = hasattr(kernel, "outcome")  # `learn` may keep replicas, where no proposal fits
        remedy = "learn with a larger budget=" if learned else "pass what inv.learn returned"
        raise InputError(
            "evidence needs a proposal with a known density q, and this kernel only moves from "
            f"where it is, as HMC does; {remedy}"
        )
    return law


def _weighted_draws(
    p: BatchedDensity, law: AbstractDistribution, key: Key[Array, ""], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of q and their log importance weights `log p - log q`."""
    # log q comes from the sampling pass: the inverse is inexact where a coupling stretches much
    drawn, log_q = (np.asarray(part) for part in _draws(law, key, count))
    forward = _log_weights(p.values(drawn), log_q)
    check(
        np.isfinite(forward).any(),
        "the density must be finite somewhere under q, but it was -inf or NaN at every one of "
        f"{count} draws of the proposal; learn the proposal again",
    )
    return drawn, forward


def _estimates(
    p: BatchedDensity, draws: Draws, forward: np.ndarray, backward: np.ndarray
) -> tuple[Estimate, Estimate]:
    """log Z by importance sampling and by the bridge, from log weights of q's and chains' draws."""
    # the rounding errors of log p and log q, which matter if q = p
    rounding = float(np.finfo(p.dtype).eps) * (1 + float(np.median(np.abs(draws.log_density))))
    more = float(np.hypot(rounding, beyond(forward)))
    by_importance, by_bridge = (
        Estimate(log_z, float(np.hypot(error, more)))
        for log_z, error in (importance(forward), bridge(forward, backward))
    )
    return by_importance, by_bridge


@jit_once
def _draws(law: AbstractDistribution, key: Array, count: int) -> tuple[Array, Array]:
    return law.sample_and_log_prob(key, (count,))


class _Verdict(NamedTuple):
    """The estimates and weights on which the verdict rests."""

    forward: np.ndarray
    backward: np.ndarray
    importance: Estimate
    bridge: Estimate
    outside: MissedMass

    def withheld(self) -> list[str]:
        """Reasons to withhold log Z."""
        reasons = []
        noise = float(np.hypot(self.importance.error, self.bridge.error))
        gap = abs(self.importance.log_z - self.bridge.log_z)
        if not gap <= APART * noise + 1e-6:
            reasons.append(
                f"importance sampling gives {self.importance.log_z:.4g} and bridge sampling "
                f"{self.bridge.log_z:.4g}, {gap / max(noise, 1e-12):.0f} standard errors apart: "
                "the proposal and the chains do not see the same mass"
            )
        unseen = float(np.mean(self.backward > self.forward.max()))
        if unseen > UNSEEN:
            reasons.append(
                f"{unseen:.1%} of the chains' draws lie where p/q is above every weight of the "
                "proposal's draws: the proposal misses a mode or a tail"
            )
        ratio = self.outside.log_mass - self.importance.log_z
        share = 1 / (1 + np.exp(-np.clip(ratio, -700.0, 700.0))) if np.isfinite(ratio) else 0.0
        if share > max(OUTSIDE, 2 * self.importance.error):
            reasons.append(
                f"at least {share:.2g} of the mass lies outside the proposal, near "
                f"{np.array2string(self.outside.point[:6], precision=3)}: learn again, "  # type: ignore[index]
                "with an initial distribution that covers it"
            )
        return reasons

    def doubts(self) -> list[str]:
        """Reasons not to trust log Z."""
        reasons = []
        k, size = pareto_k(self.forward), effective_share(self.forward) * self.forward.size
        if k >= LARGEST_K:
            reasons.append(f"Pareto k of the weights is {k:.2f} (below {LARGEST_K} is reliable)")
        if size < LEAST_SIZE:
            reasons.append(
                f"only {size:.0f} draws of the proposal are effective ({LEAST_SIZE:.0f} needed)"
            )
        apart = float(rhat(np.clip(self.backward - self.bridge.log_z, -50.0, 50.0)))
        if apart > LARGEST_TERM_RHAT:
            reasons.append(
                f"the chains disagree on p/q (R-hat {apart:.3g}, at most {LARGEST_TERM_RHAT}): "
                "run longer chains"
            )
        return reasons


def _log_weights(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """log p - log q in double precision.

    A density of NaN or +inf counts as zero, as it does in chains, which reject such points; so
    does a point at which q cannot be computed.
    """
    fine = (log_p < np.inf) & np.isfinite(log_q)
    with np.errstate(invalid="ignore"):
        return np.where(fine, log_p.astype(np.float64) - log_q.astype(np.float64), -np.inf)


def _check_draws(draws: Draws | None, kernel: AbstractKernel) -> None:
    if draws is None:
        return
    check(isinstance(draws, Draws), f"draws must come from inv.sample, got {type(draws).__name__}")
    found, dim = draws.positions.shape[2], kernel.target.dim
    check(found == dim, f"draws must be of the kernel's target, of dim {dim}, got dim {found}")
    check(
        draws.num_samples >= 8,
        f"draws must have at least 8 of every chain, got {draws.num_samples}; pass draws=None",
    )


def _chains(
    kernel: AbstractKernel,
    key: Key[Array, ""],
    drawn: np.ndarray,
    count: int,
    progress: bool | None,
) -> Draws:
    """Chains started from draws of q inside the support; with a local move if the kernel has none.

    A proposal that ignores the state never leaves its own support.
    """
    each = max(8, -(-count // CHAINS))
    mover = kernel.mover
    moves = Cycle([_local(mover, drawn), mover]) if isinstance(mover, Kernel) else kernel
    warmup = max(getattr(kernel, "warmup", 0), each // 10)
    starts = drawn[np.resize(np.arange(len(drawn)), CHAINS)]
    return sample(
        moves, key=key, num_chains=CHAINS, num_samples=each, num_warmup=warmup, initial=starts,
        progress=progress,
    )  # fmt: skip


def _local(kernel: Kernel, drawn: np.ndarray) -> Kernel:
    """A random walk with steps of the distance between neighbouring draws of q."""
    from scipy.spatial import KDTree

    some = drawn[:1000].astype(np.float64)
    apart = KDTree(some).query(some, k=min(6, len(some)))[0][:, -1]
    dim = drawn.shape[1]
    return random_walk(kernel.target, float(np.median(apart)) * 2.38 / dim)


def _log_weights_of_chains(q: BatchedDistribution, draws: Draws) -> np.ndarray:
    """`log p - log q` at the draws of chains, `(chains, draws)`."""
    flat = draws.positions.reshape(-1, draws.positions.shape[2])
    values = _log_weights(draws.log_density.ravel(), q.values(flat))
    return values.reshape(draws.log_density.shape)


def _mass_outside(
    kernel: AbstractKernel,
    law: AbstractDistribution,
    p: BatchedDensity,
    drawn: np.ndarray,
    estimate: Estimate,
    top: float,
    key: Key[Array, ""],
) -> MissedMass:
    """Search for mass where p/q exceeds `top`, the largest ratio of q's draws."""
    rng = generator(key)
    wide = _wide_starts(kernel, law, key, rng)
    return missed(
        p, BatchedDistribution(law), drawn, wide, estimate.log_z, top, rng,
        kernel.target.has_gradient,
    )  # fmt: skip


def _wide_starts(
    kernel: AbstractKernel, law: AbstractDistribution, key: Key[Array, ""], rng: np.random.Generator
) -> np.ndarray:
    """Draws of N(0, 3² I), and of X: the target's, or the kernel's if that is not q."""
    dim = kernel.target.dim
    points = [WIDE * rng.normal(size=(128, dim))]
    given = kernel.initial if isinstance(kernel.initial, Normal) else None
    initial = given if kernel.target.initial is None else kernel.target.initial
    if initial is not None and initial.shape == law.shape:
        points.append(BatchedDistribution(initial).draws(jr.fold_in(key, 1), 128))
    return np.concatenate(points)
