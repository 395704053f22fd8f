"""How far the distribution of a chain after b steps is from the posterior: a bound in nats.

Let q be the law of x_b when x_0 ~ X and K, reversible for p, makes b steps. Detailed balance gives

    q(x) / p(x) = E[X(x_0) / p(x_0)],   x_0 reached from x by b steps of K,

so the mean of w = X/p̃ over M chains run back from x estimates q(x)/p̃(x) without bias. From a draw
x ~ p its logarithm is too small on average (Jensen). For a run that ended at x, its own start is a
draw of what x came from; with it among the M the logarithm is too large on average. Hence

    E_run[log mean w] - E_posterior[log mean w]  >=  KL(q || p) + KL(p || q),

and p's normalising constant cancels. It tightens as M grows. This is AIDE (Cusumano-Towner and
Mansinghka, 2017) with the reversed chain as its auxiliary. For M = 1 no chain is run back and the
difference is that of X itself, whatever the kernel does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.core.errors import InputError, check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import ArrayLike
from involutive.diagnostics.findings import LARGEST_RHAT
from involutive.diagnostics.measured import NORMAL_95
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Kernel, State
from involutive.sampling.draws import Draws
from involutive.sampling.progress import Progress
from involutive.sampling.runner import Chains
from involutive.sampling.sample import sample
from involutive.sampling.stopping import look

BLOCK = 1024  # the most chains in one compiled block
CAPACITY = 16  # steps in one compiled chunk
LONG_RUN: dict[str, Any] = {"num_chains": 64, "num_warmup": 500, "num_samples": 500, "thin": 5}


@dataclass(frozen=True)
class Assessment:
    """Bounds on the symmetric KL divergence between a chain after b steps and the posterior.

    Attributes:
        steps: the numbers of steps b.
        bounds: in nats, one for every b.
        errors: their Monte Carlo standard errors.
        runs: M, the chains each estimate of q/p is a mean of.
        starts: how many runs, and how many posterior draws, were averaged.
        reference: where the posterior draws came from.
        target: what was sampled.
    """

    steps: tuple[int, ...]
    bounds: np.ndarray
    errors: np.ndarray
    runs: int
    starts: int
    reference: str
    target: str

    @property
    def bound(self) -> float:
        """The bound at the last number of steps asked for."""
        return float(self.bounds[-1])

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% Monte Carlo interval."""
        margin = NORMAL_95 * float(self.errors[-1])
        return self.bound - margin, self.bound + margin

    @property
    def curve(self) -> list[dict[str, float | int]]:
        """One row for every b: steps, bound, and the ends of its 95% interval."""
        rows = zip(self.steps, self.bounds.tolist(), self.errors.tolist(), strict=True)
        return [
            {"steps": b, "bound": x, "low": x - NORMAL_95 * e, "high": x + NORMAL_95 * e}
            for b, x, e in rows
        ]

    def __str__(self) -> str:
        lines = [
            f"after {row['steps']} {'step' if row['steps'] == 1 else 'steps'}: at most "
            f"{row['bound']:.3g} nats from {self.target} "
            f"(95% interval {row['low']:.3g} to {row['high']:.3g})"
            for row in self.curve
        ]
        setting = f"symmetric KL; M = {self.runs} chains, {self.starts} starts"
        return "\n".join([*lines, f"{setting}; posterior draws: {self.reference}"])


def assess(
    kernel: AbstractKernel,
    *,
    steps: int | Sequence[int],
    runs: int = 64,
    key: KeyLike,
    reference: Draws | ArrayLike | None = None,
    starts: int = 256,
    initial: AbstractDistribution | None = None,
    reverse: AbstractKernel | None = None,
    progress: bool | None = None,
) -> Assessment:
    """Bound, in nats, how far the distribution is from the posterior `steps` steps after X.

    Args:
        kernel: the kernel of the chains.
        steps: b, the number of steps, or several of them for a curve.
        runs: M, the number of chains that each estimate of the density ratio averages, at least 2.
            More chains make the bound tighter. X/p must rarely exceed M: an X with lighter tails
            than the posterior needs few, one that is large where the posterior vanishes very many.
        key: an int seed or a JAX key.
        reference: posterior draws `(n, dim)` or `Draws`. By default the target's exact draws, or
            else those of a long, thinned run whose R-hat is at most 1.01, which may still have
            missed a mode.
        starts: the number of runs and posterior draws to average over.
        initial: the distribution X, with a density; by default the kernel's own. Starts are drawn
            until their log density is finite, so the bound is about chains that start from X
            restricted to the posterior's support. The constant that X then lacks cancels.
        reverse: the kernel run backwards in time, needed only for kernels of other libraries.
        progress: show a progress bar; by default on a terminal.

    Returns:
        The bound with its error for every number of steps; see `Assessment`.

    Raises:
        InputError: if the kernel cannot be run backwards, or X has no density.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.random_walk(inv.targets.gaussian(1), 1.0)
        >>> X = inv.standard_normal(1)
        >>> found = inv.assess(kernel, steps=2, runs=4, starts=16, key=0, initial=X)
        >>> found.steps
        (2,)
    """
    found = type(kernel).__name__
    check(isinstance(kernel, AbstractKernel), f"kernel must be a kernel, got {found}")
    root, wanted = as_key(key), _check_steps(steps)
    check(
        check_count("runs", runs) > 1,
        "runs must be at least 2, got 1: the bound with one chain depends on X alone, not on the "
        "kernel; pass runs=64",
    )
    check_count("starts", starts, least=16)
    law = _check_law(kernel.initial if initial is None else initial, kernel)
    back = reverse_kernel(kernel) if reverse is None else reverse
    key_forward, key_back, key_posterior, key_reference = jr.split(root, 4)
    draws, label = _reference(kernel, law, reference, starts, key_reference, progress)
    total = sum(wanted) * (runs - 1) + max(wanted) * (runs + 1)
    with Progress("assessing", max(total, 1), progress) as bar:
        block = min(BLOCK, starts)
        sides = _Sides(law, back, runs, block, bar)
        forward = Chains(kernel, key_forward, range(starts), capacity=CAPACITY, block=block)
        forward.start(law)
        ran = sides.after_runs(forward, key_back, wanted)
        kept = sides.from_posterior(draws, key_posterior, wanted)
    bounds = [float(a.mean() - b.mean()) for a, b in zip(ran, kept, strict=True)]
    errors = [_error(a, b) for a, b in zip(ran, kept, strict=True)]
    return Assessment(
        wanted, np.array(bounds), np.array(errors), runs, starts, label, kernel.target.name
    )


def reverse_kernel(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel whose chain is `kernel`'s run backwards in time.

    An involutive kernel satisfies detailed balance and is its own; so is a mixture of such. A
    cycle is undone by its kernels in the opposite order.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, Mixture):
        return Mixture([reverse_kernel(k) for k in kernel.kernels], kernel.probabilities)
    if isinstance(kernel, Cycle):
        return Cycle([reverse_kernel(k) for k in reversed(kernel.kernels)])
    inner = getattr(kernel, "kernel", None)
    if isinstance(inner, AbstractKernel):  # a learned kernel moves as the one it holds
        return reverse_kernel(inner)
    raise InputError(
        f"kernel must be a Kernel, Mixture or Cycle for its reverse to be known, got "
        f"{type(kernel).__name__}; pass reverse=, the same kernel if it satisfies detailed balance"
    )


@dataclass
class _Sides:
    """The two expectations: log mean w from ends of runs, and from posterior draws."""

    law: AbstractDistribution
    back: AbstractKernel
    runs: int
    block: int
    bar: Progress

    def after_runs(self, forward: Chains, key: Array, wanted: tuple[int, ...]) -> list[np.ndarray]:
        """Run to x_b for every b, then M - 1 chains of b steps back; the start is the M-th."""
        own, means, done = self._log_weights(forward.state())[:, None], [], 0
        for b, end in _states_at(forward, wanted):
            others = self._chains(np.asarray(end.position), self.runs - 1, jr.fold_in(key, b))
            last = next(state for _, state in _states_at(others, (b,)))
            returned = self._log_weights(last).reshape(-1, self.runs - 1)
            means.append(_log_mean(np.concatenate([own, returned], axis=1)))
            done += b * (self.runs - 1)
            self.bar.update(done, steps=b)
        return means

    def from_posterior(self, draws: np.ndarray, key: Array, wanted: tuple[int, ...]) -> list:
        """M chains back from every posterior draw; one run passes every b."""
        chains, means = self._chains(draws, self.runs, key), []
        for b, state in _states_at(chains, wanted):
            means.append(_log_mean(self._log_weights(state).reshape(-1, self.runs)))
            self.bar.update(sum(wanted) * (self.runs - 1) + b * self.runs, steps=b)
        return means

    def _chains(self, positions: np.ndarray, copies: int, key: Key[Array, ""]) -> Chains:
        repeated = np.repeat(positions, copies, axis=0)
        ids = range(len(repeated))
        chains = Chains(self.back, key, ids, capacity=CAPACITY, block=self.block)
        chains.start(repeated)
        return chains

    def _log_weights(self, state: State) -> np.ndarray:
        """`log X(x) - log p̃(x)` at the states of all chains."""
        check(
            not np.isposinf(state.log_density).any(),
            "a chain met a density of +inf, so there is nothing to compare with; bound the density",
        )
        log_prob = np.asarray(_log_prob(self.law, jnp.asarray(state.position)), np.float64)
        return log_prob - np.asarray(state.log_density, np.float64)


@eqx.filter_jit
def _log_prob(law: AbstractDistribution, positions: Array) -> Array:
    return law.log_prob(positions)


def _states_at(chains: Chains, wanted: Sequence[int]) -> Iterator[tuple[int, State]]:
    """Advance the chains and stop at every wanted number of steps, in increasing order."""
    for b in wanted:
        while chains.step < b:
            chains.advance(min(CAPACITY, b - chains.step))
        yield b, chains.state()


def _log_mean(log_weights: np.ndarray) -> np.ndarray:
    top = log_weights.max(axis=1, keepdims=True)
    return top[:, 0] + np.log(np.mean(np.exp(log_weights - top), axis=1))


def _error(ran: np.ndarray, kept: np.ndarray) -> float:
    return float(np.sqrt(ran.var(ddof=1) / ran.size + kept.var(ddof=1) / kept.size))


def _check_steps(steps: int | Sequence[int]) -> tuple[int, ...]:
    several = steps if isinstance(steps, Sequence | np.ndarray) else [steps]
    wanted = tuple(check_count("steps", b, least=0) for b in several)
    check(wanted, "steps must hold at least one number of steps, got none")
    check(
        all(a < b for a, b in pairwise(wanted)),
        f"steps must increase, got {wanted}",
    )
    return wanted


def _check_law(law: AbstractDistribution | None, kernel: AbstractKernel) -> AbstractDistribution:
    if not isinstance(law, AbstractDistribution):
        raise InputError(
            f"initial must be a distribution X with a density (a FlowJAX distribution), got "
            f"{type(law).__name__}; pass initial= or build the kernel with one"
        )
    check(
        law.shape == (kernel.target.dim,),
        f"initial must be a distribution of {kernel.target.dim} coordinates, got shape {law.shape}",
    )
    return law


def _reference(
    kernel: AbstractKernel,
    law: AbstractDistribution,
    given: Draws | ArrayLike | None,
    count: int,
    key: Array,
    progress: bool | None,
) -> tuple[np.ndarray, str]:
    """Posterior draws, as many as asked for, and where they come from."""
    dim = kernel.target.dim
    if given is None and kernel.target.sample is not None:
        return np.asarray(kernel.target.sample(key, count)), "exact draws"
    if given is None:
        return _long_run(kernel, law, count, key, progress)
    rows = given.positions.reshape(-1, dim) if isinstance(given, Draws) else np.asarray(given)
    check(
        rows.ndim == 2 and rows.shape[1] == dim and len(rows) >= 16 and np.isfinite(rows).all(),
        f"reference must be at least 16 finite draws of shape (n, {dim}), got {rows.shape}",
    )
    return _spaced(rows, count), f"{min(count, len(rows))} given draws"


def _long_run(
    kernel: AbstractKernel,
    law: AbstractDistribution,
    count: int,
    key: Array,
    progress: bool | None,
) -> tuple[np.ndarray, str]:
    draws = sample(kernel, key=key, initial=law, progress=progress, **LONG_RUN)
    seen = look(kernel.target, draws.positions)
    most = LARGEST_RHAT["r_hat"]
    check(
        seen["rhat"] <= most and seen["ess"] >= count,
        f"a reference run must have R-hat at most {most} and {count} effective draws, got R-hat "
        f"{seen['rhat']:.3g} ({seen['most']}) and ESS {seen['ess']:.0f} ({seen['least']}); pass "
        "reference= posterior draws",
    )
    rows = np.swapaxes(draws.positions, 0, 1).reshape(-1, kernel.target.dim)
    return _spaced(rows, count), f"a long run (R-hat {seen['rhat']:.3f})"


def _spaced(rows: np.ndarray, count: int) -> np.ndarray:
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
