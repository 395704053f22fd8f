"""From draws of the target to a trained global proposal.

1. Whiten the draws.
2. Fit a Gaussian mixture by EM, with more components while that helps: φ' = g⁻¹(π), π ~ mixture,
   with g the whitening alone.
3. Tune it by the log-variance objective, which uses the density itself.
4. If it is still far from the target, put affine couplings in g and train them by likelihood, then
   by log-variance; keep whichever proposal has more effective draws per draw.

Everything is judged by `independence_metrics`, never by acceptance.
"""

import time
from dataclasses import dataclass, replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.bijections.cascades import affine_cascade
from involutive.bijections.whitening import transform_all, whitened, whitening
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.em import fit_components
from involutive.learning.fit.importance import component_counts
from involutive.learning.fit.mixture import count_clusters
from involutive.learning.judge.independence import independence_metrics
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Proposal, Row
from involutive.targets.target import Target
from involutive.training.fit import Fit, TrainConfig, fit
from involutive.training.likelihood import Likelihood, LogVariance
from involutive.training.objective import AbstractObjective
from involutive.training.samples import HELD_OUT, split_samples
from involutive.training.schedules import DECAYED_ADAM, decaying


@dataclass(frozen=True)
class Training:
    """The draws, settings and deadline that the steps of one training share."""

    samples: np.ndarray
    held: Array
    settings: LearnSettings
    progress: bool | None
    deadline: float  # on the clock of `time.perf_counter()`

    @property
    def spent(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline

    def fit(
        self,
        kernel: Kernel,
        objective: AbstractObjective,
        key: Key[Array, ""],
        steps: int,
        rate: Number,
        label: str,
    ) -> Fit:
        """Run one objective for at most `steps` updates; the learning rate falls to zero.

        Couplings gain most at the end of that schedule, so only mixtures stop early.
        """
        how = self.settings.fit
        patience = None if has_couplings(kernel) else how.patience
        key_fit, key_memory = split(key, 2)
        memory = decaying(objective.init(kernel, key_memory), rate, steps)
        left = self.deadline - time.perf_counter()
        seconds = max(left, 0.01) if np.isfinite(left) else None
        every = max(steps // how.training_looks, 1)
        config = TrainConfig(steps, every, patience, how.tolerance, seconds=seconds, monitor=0)
        return fit(
            kernel, objective, self.samples, key=key_fit, config=config, progress=self.progress,
            label=label, memory=memory,
        )  # fmt: skip

    def metrics(self, kernel: Kernel, key: Key[Array, ""]) -> dict[str, float]:
        """`independence_metrics` of a proposal on the held-out draws."""
        return independence_metrics(kernel, self.held, key, self.settings.judge.scored)


def train_proposal(
    target: Target,
    samples: np.ndarray,
    key: Key[Array, ""],
    *,
    settings: LearnSettings | None = None,
    initial: AbstractDistribution | None = None,
    progress: bool | None = None,
    previous: Proposal | None = None,
    deadline: Number = float("inf"),
    most: Number = float("inf"),
) -> tuple[Proposal, int]:
    """Train a global proposal on (approximate) draws of the target.

    Args:
        target: the density.
        samples: draws `(n, dim)`.
        key: randomness.
        settings: sizes.
        initial: the initial distribution that the kernel keeps.
        progress: show progress bars.
        previous: a proposal trained before on other draws; its couplings are trained on.
        deadline: after which nothing more is begun, by `time.perf_counter()`.
        most: density evaluations that training may take; without enough of them for couplings,
            none are trained.

    Returns:
        The proposal, and the density evaluations that training took.
    """
    settings = settings or LearnSettings()
    key_rows, key_split, key_kept, key_mixture, key_tune, key_couplings = split(key, 6)
    samples = _resize(samples, key_rows, settings.training_draws)
    data, held = split_samples(samples, key_split)
    training = Training(samples, held, settings, progress, deadline)
    if previous is not None and has_couplings(previous.kernel):
        best, evaluations = _train_couplings(previous, previous.kernel, training, key_couplings)
        return best, evaluations + _scored(best, settings, len(previous.history))
    counts = _counts(target, len(samples), settings, previous)
    best = _keep_previous(previous, counts, training, key_kept)
    best = best or _grow_mixture(target, data, key_mixture, training, counts, initial)
    evaluations = 0
    if not training.spent and settings.tune_steps:
        best, evaluations = _tune(best, training, key_tune)
    # couplings are trained twice: with one normal, and with one per mode
    scored = _scored(best, settings)
    affordable = evaluations + scored + 2 * training_evaluations(settings) <= most
    bend = target.dim > 1 and best.ess < settings.couplings_below
    if bend and affordable and not training.spent:
        best, more = _with_couplings(best, training, key_couplings)
        evaluations += more
    return best, evaluations + _scored(best, settings)


def training_evaluations(settings: LearnSettings) -> int:
    """Maximum density evaluations of a training without couplings."""
    fit = settings.fit
    looks = (fit.training_looks + 1) * 2 * HELD_OUT * settings.training_draws
    return int(settings.tune_steps * settings.batch + looks) + scoring_evaluations(settings)


def scoring_evaluations(settings: LearnSettings) -> int:
    """Approximate density evaluations that score the mixtures of a training."""
    return 2 * settings.fit.training_scorings * settings.judge.scored


def _scored(proposal: Proposal, settings: LearnSettings, before: int = 0) -> int:
    """Density evaluations that scored proposals, one row each, from row `before` on."""
    return 2 * settings.judge.scored * sum("ess" in row for row in proposal.history[before:])


def _resize(samples: np.ndarray, key: Key[Array, ""], rows: int) -> np.ndarray:
    """Resize to the `rows` that a training works on, so that every round reuses compiled programs.

    More draws are thinned at random. Fewer draws are used as they are if there are at least half as
    many, and are repeated otherwise.
    """
    n = len(samples)
    if rows // 2 <= n <= rows:
        rows = n
    order = generator(key).permutation(n)
    return samples[np.resize(order, rows)] if n != rows else samples


def _counts(
    target: Target, rows: int, settings: LearnSettings, previous: Proposal | None
) -> tuple[int, ...]:
    """Numbers of components to try: all of them, or from the previous number upwards."""
    modes = 0 if previous is None else previous.components
    counts = component_counts(modes, rows, target.dim, settings)
    if previous is None or previous.components == 0:
        return counts
    above = tuple(count for count in counts if count > previous.components)
    more = above[:1] if previous.ess < settings.fit.keeps else ()
    return (previous.components, *more)


def _keep_previous(
    previous: Proposal | None, counts: tuple[int, ...], training: Training, key: Key[Array, ""]
) -> Proposal | None:
    """The previous mixture, re-scored on the new draws, if its ESS has not dropped.

    It was tuned, and tuning continues from it; a new fit would lose that tuning.
    """
    if previous is None or len(counts) > 1:
        return None
    metrics = training.metrics(previous.kernel, key)
    if metrics["ess"] < training.settings.fit.keeps * previous.ess:
        return None
    row: Row = {"stage": f"mixture of {previous.components} kept", **metrics}
    return replace(previous, history=[row], **metrics)


def _grow_mixture(
    target: Target,
    data: Array,
    key: Key[Array, ""],
    training: Training,
    counts: tuple[int, ...],
    initial: AbstractDistribution | None,
) -> Proposal:
    """Fit mixtures of growing size until more components stop helping."""
    g, white = whitened(data)
    best, history, how = None, list[Row](), training.settings.fit
    key_judge, *keys = split(key, 1 + len(counts))
    for count, key_count in zip(counts, keys, strict=True):
        auxiliary = fit_components(white, count, key_count, how).distribution()
        kernel = Kernel(target, FunctionBlock(g), auxiliary, initial)
        # the same random numbers for every proposal, so that their sizes can be compared
        metrics = training.metrics(kernel, jr.clone(key_judge))
        history = [*history, {"stage": f"mixture of {count}", **metrics}]
        if best is not None and metrics["ess"] <= how.helps * best.ess:
            break
        best = Proposal(kernel, metrics["acceptance"], metrics["ess"], count)
        if best.ess > training.settings.good_enough or training.spent:
            break
    assert best is not None
    return replace(best, history=history)


def _tune(proposal: Proposal, training: Training, key: Key[Array, ""]) -> tuple[Proposal, int]:
    """Tune by the log-variance objective; return the tuned proposal if it is better."""
    key_fit, key_judge = split(key, 2)
    settings, steps = training.settings, training.settings.tune_steps
    coupled = has_couplings(proposal.kernel)
    rate = settings.coupling_rate / settings.fit.tune_slower if coupled else settings.learning_rate
    objective = LogVariance(DECAYED_ADAM, settings.batch)
    fitted = training.fit(proposal.kernel, objective, key_fit, steps, rate, "tuning")
    metrics = training.metrics(fitted.kernel, key_judge)
    history = [*proposal.history, *_rows("log-variance", fitted, metrics)]
    done = int(fitted.history[-1]["step"])
    evaluations = done * settings.batch + 2 * len(training.held) * len(fitted.history)
    better = replace(proposal, kernel=fitted.kernel, **metrics)
    better = better if metrics["ess"] > proposal.ess else proposal
    return replace(better, history=history), evaluations


def _with_couplings(
    proposal: Proposal, training: Training, key: Key[Array, ""]
) -> tuple[Proposal, int]:
    """Put couplings in g and train them; return the better proposal.

    First the auxiliary distribution is one normal, which couplings bend into one curved mode. If
    that is not enough, a mixture with one component per mode is tried.
    """
    key_new, key_parts, key_one, key_many, *keys = split(key, 6)
    points, settings = jnp.asarray(training.samples), training.settings
    couplings = affine_cascade(
        key_new, points.shape[1], settings.coupling_layers, settings.coupling_width
    )
    g = fb.Chain([whitening(points), couplings])
    latent = transform_all(g, points)
    counts = component_counts(0, len(points), points.shape[1], settings)
    parts = fit_components(latent, counts[0], key_parts, settings.fit)
    clusters = count_clusters(parts, settings.fit.overlap)
    best, evaluations = proposal, 0
    for count, key_base, key_fit in ((1, key_one, keys[0]), (clusters, key_many, keys[1])):
        auxiliary = fit_components(latent, count, key_base, settings.fit).distribution()
        kernel = Kernel(
            proposal.kernel.target, FunctionBlock(g), auxiliary, proposal.kernel.initial
        )
        flow, more = _train_couplings(best, kernel, training, key_fit)
        evaluations += more
        best = flow if flow.ess > best.ess else replace(best, history=flow.history)
        if best.ess > settings.couplings_below or clusters == 1 or training.spent:
            break
    return best, evaluations


def _train_couplings(
    proposal: Proposal, kernel: Kernel, training: Training, key: Key[Array, ""]
) -> tuple[Proposal, int]:
    """Train couplings by likelihood, which is robust, then tune them by log-variance."""
    key_fit, key_judge, key_tune = split(key, 3)
    settings = training.settings
    objective = Likelihood(DECAYED_ADAM, settings.batch)
    rate, steps = settings.coupling_rate, settings.coupling_steps
    fitted = training.fit(kernel, objective, key_fit, steps, rate, "couplings")
    metrics = training.metrics(fitted.kernel, key_judge)
    rows = [*proposal.history, *_rows("likelihood", fitted, metrics)]
    flow = Proposal(fitted.kernel, metrics["acceptance"], metrics["ess"], 0, rows)
    return (flow, 0) if training.spent else _tune(flow, training, key_tune)


def has_couplings(kernel: Kernel) -> bool:
    """Whether the g of a proposal is more than a whitening."""
    f = kernel.involution
    return isinstance(f, FunctionBlock) and isinstance(f.g, fb.Chain)


def _rows(stage: str, fitted: Fit, metrics: dict[str, float]) -> list[Row]:
    return [{"stage": stage, **row} for row in fitted.history] + [{"stage": stage, **metrics}]
