"""The default recipe: from draws of the target to a trained global proposal.

1. Whiten the draws.
2. Fit a Gaussian mixture by EM, with more components while that helps: φ' = g⁻¹(π), π ~ mixture,
   with g the whitening alone.
3. Fine-tune it by the log-variance objective, which uses the density itself.
4. If it is still far from the target, put affine couplings in g and train them by likelihood, then
   by log-variance; keep whichever proposal has more effective draws per draw.

Everything is judged by `independence_ess`, never by acceptance.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.bijections.cascades import affine_cascade
from involutive.bijections.whitening import transform_all, whitened, whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.em import count_clusters, fit_mixture
from involutive.learning.judge.independence import independence_figures
from involutive.targets.target import Target
from involutive.training.fit import Fit, TrainConfig, fit, split_samples
from involutive.training.likelihood import Likelihood, LogVariance
from involutive.training.objective import AbstractObjective
from involutive.training.schedules import DECAYED_ADAM, decaying

KEPT = 0.9  # share of a mixture's effective draws that it must keep on new draws, or it is refitted
MANY = 12  # dimensions above which couplings and large mixtures are dear


@dataclass(frozen=True)
class Recipe:
    """Sizes of the default recipe, chosen by `involutive experiment recipe`.

    Attributes:
        components: how many mixture components to try, in turn; None chooses by dimension.
        good_enough: effective draws per draw at which nothing more is added.
        flow_below: effective draws per draw below which couplings are added to g; half of it in
            more than 12 dimensions, where they take minutes to train.
        tune_steps: updates of the log-variance objective.
        flow_steps: updates of the likelihood objective for couplings.
        layers, width: size of the couplings.
        batch: points an update.
        rows: draws a training works on.
        learning_rate: of Adam for tuning a mixture, decayed to zero over the run.
        flow_rate: of Adam for couplings; a quarter of it for tuning them.
    """

    components: tuple[int, ...] | None = None
    good_enough: float = 0.97
    flow_below: float = 0.6
    tune_steps: int = 1500
    flow_steps: int = 2000
    layers: int = 8
    width: int = 32
    batch: int = 512
    rows: int = 20_000
    learning_rate: float = 1e-2
    flow_rate: float = 1e-2

    def shorter(self, factor: float | int, least: int = 1) -> "Recipe":
        """The same with that many times fewer updates, but at least `least`."""
        return replace(
            self,
            tune_steps=max(int(self.tune_steps / factor), min(least, self.tune_steps)),
            flow_steps=max(int(self.flow_steps / factor), min(least, self.flow_steps)),
        )

    def flow_in(self, dim: int) -> float:
        """Effective draws per draw below which couplings are added in `dim` dimensions."""
        return 0.0 if dim == 1 else self.flow_below if dim <= MANY else self.flow_below / 2

    def ladder(self, dim: int) -> tuple[int, ...]:
        """The numbers of components to try in `dim` dimensions."""
        if self.components is not None:
            return self.components
        if dim <= 3:
            return (32, 128)
        return (16, 48) if dim <= MANY else (24,) if dim <= 30 else (8,)


@dataclass(frozen=True)
class Trained:
    """A trained global proposal with its figures and the rows of its training history."""

    kernel: Kernel
    acceptance: float
    ess: float
    history: list[dict[str, Any]]
    evaluations: int = 0
    components: int = 0


def train_proposal(
    target: Target,
    samples: np.ndarray,
    key: Key[Array, ""],
    *,
    recipe: Recipe | None = None,
    initial: AbstractDistribution | None = None,
    progress: bool | None = None,
    previous: Trained | None = None,
    seconds: float | None = None,
) -> Trained:
    """Train a global proposal on (approximate) draws by the default recipe.

    Args:
        target: the density.
        samples: draws `(n, dim)`.
        key: randomness.
        recipe: sizes.
        initial: the law X that the kernel keeps.
        progress: show progress bars.
        previous: a proposal trained before on other draws; its couplings are trained on.
        seconds: a limit on the time of training, after which nothing more is begun.
    """
    recipe = recipe or Recipe()
    until = None if seconds is None else time.perf_counter() + seconds
    key_rows, key_split, key_mixture, key_tune, key_flow = split(key, 5)
    samples = _rows_of_one_size(samples, key_rows, recipe.rows)
    data, held = split_samples(samples, key_split)
    work = Work(samples, held, recipe, progress, until)
    if previous is not None and has_couplings(previous.kernel):
        return _with_couplings(previous, work, key_flow)
    counts = _counts(target, recipe, previous)
    best = _still_good(previous, counts, work, key_mixture)
    best = best or _grow_mixture(target, data, key_mixture, work, counts, initial)
    if not work.spent:
        best = _tune(best, work, key_tune)
    if best.ess < recipe.flow_in(target.dim) and not work.spent:
        best = _with_couplings(best, work, key_flow)
    return best


def _rows_of_one_size(samples: np.ndarray, key: Key[Array, ""], rows: int) -> np.ndarray:
    """As many rows as the recipe works on, so that every round reuses what was compiled.

    More draws than that are thinned at random; fewer are used as they are if they are many enough,
    and else repeated.
    """
    n = len(samples)
    if rows // 2 <= n <= rows:
        rows = n
    order = generator(key).permutation(n)
    return samples[np.resize(order, rows)] if n != rows else samples


def _counts(target: Target, recipe: Recipe, previous: Trained | None) -> tuple[int, ...]:
    """How many components to try: all of the ladder, or from what served before upwards."""
    ladder = recipe.ladder(target.dim)
    if previous is None or previous.components == 0:
        return ladder
    above = tuple(count for count in ladder if count > previous.components)
    return (previous.components, *above[:1]) if previous.ess < 0.9 else (previous.components,)


def _still_good(
    previous: Trained | None, counts: tuple[int, ...], work: "Work", key: Key[Array, ""]
) -> Trained | None:
    """The mixture of before with its figures on the new draws, if it has lost nothing on them.

    It was tuned, so tuning goes on from it; another fit would start again from less.
    """
    if previous is None or len(counts) > 1:
        return None
    figures = independence_figures(previous.kernel, work.held, jr.fold_in(key, 0))
    if figures["ess"] < KEPT * previous.ess:
        return None
    row = {"stage": f"mixture of {previous.components} kept", **figures}
    return replace(previous, history=[row], evaluations=0, **figures)


def _grow_mixture(
    target: Target,
    data: Array,
    key: Key[Array, ""],
    work: "Work",
    counts: tuple[int, ...],
    initial: AbstractDistribution | None,
) -> Trained:
    """Fit mixtures of growing size until more components help no more."""
    g, white = whitened(data)
    best: Trained | None = None
    for count in counts:
        law = fit_mixture(white, count, jr.fold_in(key, count)).law()
        kernel = Kernel(target, FunctionBlock(g), law, initial)
        figures = independence_figures(kernel, work.held, jr.fold_in(key, 0))
        row = {"stage": f"mixture of {count}", **figures}
        history = [*(best.history if best else []), row]
        if best is None or figures["ess"] > 1.02 * best.ess:
            best = Trained(kernel, figures["acceptance"], figures["ess"], history, 0, count)
        else:
            return _noted(best, history)
        if best.ess > work.recipe.good_enough or work.spent:
            break
    assert best is not None
    return best


def _noted(trained: Trained, history: list[dict[str, Any]]) -> Trained:
    return replace(trained, history=history)


@dataclass(frozen=True)
class Work:
    """What the stages of one training share."""

    samples: np.ndarray
    held: Array
    recipe: Recipe
    progress: bool | None
    until: float | int | None  # by the clock of `time.perf_counter`

    @property
    def seconds(self) -> float | int | None:
        """Seconds left, or None without a limit."""
        return None if self.until is None else max(self.until - time.perf_counter(), 0.01)

    @property
    def spent(self) -> bool:
        """Whether no time is left to begin anything."""
        return self.until is not None and time.perf_counter() > self.until

    def fit(
        self,
        kernel: Kernel,
        objective: AbstractObjective,
        key: Array,
        steps: int,
        rate: float,
        label: str,
    ) -> Fit:
        """Run one objective for at most `steps` updates, the rate falling from `rate` to zero.

        Couplings gain most while the rate falls at the end, so only mixtures stop early.
        """
        patience = None if has_couplings(kernel) else 3
        key, key_memory = split(key, 2)
        memory = decaying(objective.init(kernel, key_memory), rate, steps)
        config = TrainConfig(
            steps, max(steps // 10, 1), patience, 1e-4, seconds=self.seconds, monitor=0
        )
        return fit(
            kernel, objective, self.samples, key=key, config=config, progress=self.progress,
            label=label, memory=memory,
        )  # fmt: skip


def _tune(trained: Trained, work: Work, key: Key[Array, ""]) -> Trained:
    """Fine-tune by the log-variance objective; keep the better."""
    recipe, steps = work.recipe, work.recipe.tune_steps
    rate = recipe.flow_rate / 4 if has_couplings(trained.kernel) else recipe.learning_rate
    objective = LogVariance(DECAYED_ADAM, recipe.batch)
    key_figures = jr.fold_in(key, 1)
    fitted = work.fit(trained.kernel, objective, key, steps, rate, "tuning")
    figures = independence_figures(fitted.kernel, work.held, key_figures)
    history = [*trained.history, *_rows("log-variance", fitted.history, figures)]
    done = int(fitted.history[-1]["step"])
    spent = trained.evaluations + done * recipe.batch + 2 * len(work.held) * len(fitted.history)
    trained = replace(trained, history=history, evaluations=spent)
    if figures["ess"] <= trained.ess:
        return trained
    return replace(trained, kernel=fitted.kernel, **figures)


def _with_couplings(trained: Trained, work: Work, key: Key[Array, ""]) -> Trained:
    """Train the couplings of g, put there first if there are none.

    A normal law behind new couplings bends into one curved mode; if that is not enough, a mixture
    with one component a mode is tried.
    """
    if has_couplings(trained.kernel):
        return _train_couplings(trained, trained.kernel, work, key)
    key_new, key_one, key_many = split(key, 3)
    points = jnp.asarray(work.samples)
    g = _new_couplings(points, key_new, work.recipe)
    latent = transform_all(g, points)
    parts = fit_mixture(latent, work.recipe.ladder(latent.shape[1])[0], key_new)
    clusters = count_clusters(parts)
    best = trained
    for count, key_base in ((1, key_one), (clusters, key_many)):
        law = fit_mixture(latent, count, key_base).law()
        kernel = Kernel(trained.kernel.target, FunctionBlock(g), law, trained.kernel.initial)
        flow = _train_couplings(best, kernel, work, key_base)
        best = flow if flow.ess > best.ess else replace(best, history=flow.history)
        if best.ess > work.recipe.flow_in(latent.shape[1]) or clusters == 1 or work.spent:
            break
    return best


def _train_couplings(trained: Trained, kernel: Kernel, work: Work, key: Key[Array, ""]) -> Trained:
    """Train couplings by likelihood, which is robust, and then tune them."""
    key_fit, key_figures, key_tune = split(key, 3)
    recipe, steps = work.recipe, work.recipe.flow_steps
    objective = Likelihood(DECAYED_ADAM, recipe.batch)
    fitted = work.fit(kernel, objective, key_fit, steps, recipe.flow_rate, "couplings")
    figures = independence_figures(fitted.kernel, work.held, key_figures)
    rows = [*trained.history, *_rows("likelihood", fitted.history, figures)]
    flow = Trained(fitted.kernel, figures["acceptance"], figures["ess"], rows, trained.evaluations)
    return flow if work.spent else _tune(flow, work, key_tune)


def has_couplings(kernel: Kernel) -> bool:
    """Whether the g of a proposal is more than a whitening."""
    f = kernel.involution
    return isinstance(f, FunctionBlock) and isinstance(f.g, fb.Chain)


def _new_couplings(points: Array, key: Key[Array, ""], recipe: Recipe) -> fb.Chain:
    """Whitening, and couplings that do nothing yet."""
    couplings = affine_cascade(key, points.shape[1], recipe.layers, recipe.width)
    return fb.Chain([whitening(points), couplings])


def _rows(
    stage: str, rows: list[dict[str, float]], figures: dict[str, float]
) -> list[dict[str, Any]]:
    return [{"stage": stage, **row} for row in rows] + [{"stage": stage, **figures}]
