"""The default recipe: from draws of the target to a trained global proposal.

1. Whiten the draws.
2. Fit a Gaussian mixture by EM, with more components while that helps: φ' = g⁻¹(π), π ~ mixture,
   with g the whitening alone.
3. Fine-tune it by the log-variance objective, which uses the density itself.
4. If it is still far from the target, put affine couplings in g and train them by likelihood, then
   by log-variance; keep whichever proposal has more effective draws per draw.

Everything is judged by `independence_ess`, never by acceptance.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive.auxiliary import GaussianMixture
from involutive.bijections import Whitening, affine_cascade
from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel
from involutive.targets import Target
from involutive.training.likelihood import Likelihood, LogVariance, log_weight, proposal_draw
from involutive.training.loop import Fit, TrainConfig, fit, split_samples
from involutive.training.mixture_fit import count_clusters, fit_mixture
from involutive.training.objective import AbstractObjective


@dataclass(frozen=True)
class Recipe:
    """Sizes of the default recipe, chosen by `involutive experiment recipe`.

    Attributes:
        components: how many mixture components to try, in turn; None chooses by dimension.
        good_enough: effective draws per draw at which nothing more is added.
        flow_below: effective draws per draw below which couplings are added to g.
        tune_steps: updates of the log-variance objective.
        flow_steps: updates of the likelihood objective for couplings.
        layers, width: size of the couplings.
        batch: points an update.
        rows: draws a training works on.
        learning_rate: of Adam for tuning a mixture, decayed to zero over the run.
        flow_rate: of Adam for couplings; half of it for tuning them.
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
    flow_rate: float = 5e-3

    def ladder(self, dim: int) -> tuple[int, ...]:
        """The numbers of components to try in `dim` dimensions."""
        if self.components is not None:
            return self.components
        if dim <= 3:
            return (8, 32, 128)
        return (4, 16, 48) if dim <= 12 else (4, 24) if dim <= 30 else (1, 8)


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
        seconds: a limit on the time of each training.
    """
    recipe = recipe or Recipe()
    key_rows, key_split, key_mixture, key_tune, key_flow = jr.split(key, 5)
    samples = _rows_of_one_size(samples, key_rows, recipe.rows)
    data, held = split_samples(samples, key_split)
    work = Work(samples, held, recipe, progress, seconds)
    counts = _counts(target, recipe, previous)
    best = _grow_mixture(target, data, held, key_mixture, recipe, counts, initial)
    best = _tune(best, work, key_tune)
    if best.ess < recipe.flow_below and target.dim > 1:
        flow = _with_couplings(best, work, key_flow, previous)
        best = flow if flow.ess > best.ess else best
    return best


def _rows_of_one_size(samples: np.ndarray, key: Key[Array, ""], rows: int) -> np.ndarray:
    """As many rows as the recipe works on, so that every round reuses what was compiled.

    More draws than that are thinned at random; fewer are used as they are if they are many enough,
    and else repeated.
    """
    n = len(samples)
    if rows // 2 <= n <= rows:
        rows = n
    order = np.asarray(jr.permutation(key, n))
    return samples[np.resize(order, rows)] if n != rows else samples


def _counts(target: Target, recipe: Recipe, previous: Trained | None) -> tuple[int, ...]:
    """How many components to try: all of the ladder, or from what served before upwards."""
    ladder = recipe.ladder(target.dim)
    if previous is None or previous.components == 0:
        return ladder
    above = tuple(count for count in ladder if count > previous.components)
    return (previous.components, *above[:1]) if previous.ess < 0.9 else (previous.components,)


@eqx.filter_jit
def whitening(points: Float[Array, "n dim"]) -> Whitening:
    """Whiten by mean and covariance, with points beyond six robust sds drawn in first."""
    dim = points.shape[1]
    centre = jnp.median(points, axis=0)
    low, high = jnp.quantile(points, jnp.array([0.16, 0.84]), axis=0)
    scale = jnp.maximum((high - low) / 2, jnp.std(points, axis=0) * 1e-3)
    drawn_in = jnp.clip((points - centre[None, :]) / scale[None, :], -6.0, 6.0)
    covariance = jnp.cov(drawn_in.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim)
    factor = scale[:, None] * jnp.linalg.cholesky(covariance)
    return Whitening(centre + scale * jnp.mean(drawn_in, axis=0), factor)


@eqx.filter_jit
def transform_all(g: fb.AbstractBijection, points: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """`g` of every row."""
    return jax.vmap(g.transform)(points)


def _grow_mixture(
    target: Target,
    data: Array,
    held: Array,
    key: Key[Array, ""],
    recipe: Recipe,
    counts: tuple[int, ...],
    initial: AbstractDistribution | None,
) -> Trained:
    """Fit mixtures of growing size until more components help no more."""
    g = whitening(data)
    white = transform_all(g, data)
    best: Trained | None = None
    for count in counts:
        law = fit_mixture(white, count, jr.fold_in(key, count)).law()
        kernel = Kernel(target, FunctionBlock(g), law, initial)
        figures = independence_figures(kernel, held, jr.fold_in(key, 0))
        row = {"stage": f"mixture of {count}", **figures}
        history = [*(best.history if best else []), row]
        if best is None or figures["ess"] > 1.02 * best.ess:
            best = Trained(kernel, figures["acceptance"], figures["ess"], history, 0, count)
        else:
            return _noted(best, history)
        if best.ess > recipe.good_enough:
            break
    assert best is not None
    return best


def _noted(trained: Trained, history: list[dict[str, Any]]) -> Trained:
    return replace(trained, history=history)


@functools.cache  # one object a setting, so that training with it again compiles nothing
def _optimiser(rate: float, steps: int) -> optax.GradientTransformation:
    schedule = optax.cosine_decay_schedule(rate, steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


@dataclass(frozen=True)
class Work:
    """What the stages of one training share."""

    samples: np.ndarray
    held: Array
    recipe: Recipe
    progress: bool | None
    seconds: float | int | None

    def fit(
        self, kernel: Kernel, objective: AbstractObjective, key: Array, steps: int, label: str
    ) -> Fit:
        """Run one objective for at most `steps` updates.

        Couplings gain most while the rate falls at the end, so only mixtures stop early.
        """
        patience = None if _has_couplings(kernel) else 3
        config = TrainConfig(
            steps, max(steps // 10, 1), patience, 1e-4, seconds=self.seconds, monitor=0
        )
        return fit(
            kernel, objective, self.samples, key=key, config=config, progress=self.progress,
            label=label,
        )  # fmt: skip


def _tune(trained: Trained, work: Work, key: Key[Array, ""]) -> Trained:
    """Fine-tune by the log-variance objective; keep the better."""
    recipe, steps = work.recipe, work.recipe.tune_steps
    rate = recipe.flow_rate / 2 if _has_couplings(trained.kernel) else recipe.learning_rate
    objective = LogVariance(_optimiser(rate, steps), recipe.batch)
    key_figures = jr.fold_in(key, 1)
    fitted = work.fit(trained.kernel, objective, key, steps, "tuning")
    figures = independence_figures(fitted.kernel, work.held, key_figures)
    history = [*trained.history, *_rows("log-variance", fitted.history, figures)]
    done = int(fitted.history[-1]["step"])
    spent = trained.evaluations + done * recipe.batch + 2 * len(work.held) * len(fitted.history)
    trained = replace(trained, history=history, evaluations=spent)
    if figures["ess"] <= trained.ess:
        return trained
    return replace(trained, kernel=fitted.kernel, **figures)


def _with_couplings(
    trained: Trained, work: Work, key: Key[Array, ""], previous: Trained | None
) -> Trained:
    """Put affine couplings in g, or go on with those of before; likelihood first, then tuning."""
    key_new, key_fit, key_tune = jr.split(key, 3)
    recipe, steps = work.recipe, work.recipe.flow_steps
    kernel = trained.kernel
    if previous is not None and _has_couplings(previous.kernel):
        kernel, steps = previous.kernel, steps // 2
    else:
        kernel = _new_couplings(kernel, jnp.asarray(work.samples), key_new, recipe)
    objective = Likelihood(_optimiser(recipe.flow_rate, steps), recipe.batch)
    key_figures = jr.fold_in(key_fit, 1)
    fitted = work.fit(kernel, objective, key_fit, steps, "couplings")
    figures = independence_figures(fitted.kernel, work.held, key_figures)
    rows = [*trained.history, *_rows("likelihood", fitted.history, figures)]
    flow = Trained(fitted.kernel, figures["acceptance"], figures["ess"], rows, trained.evaluations)
    return _tune(flow, work, key_tune)


def _has_couplings(kernel: Kernel) -> bool:
    f = kernel.involution
    return isinstance(f, FunctionBlock) and isinstance(f.g, fb.Chain)


def _new_couplings(kernel: Kernel, points: Array, key: Key[Array, ""], recipe: Recipe) -> Kernel:
    """A kernel whose g is whitening and untrained couplings, with a mixture fitted behind them."""
    key_net, key_base = jr.split(key)
    dim = kernel.target.dim
    couplings = affine_cascade(key_net, dim, recipe.layers, recipe.width)
    g = fb.Chain([whitening(points), *couplings.bijections])
    latent = transform_all(g, points)
    clusters = count_clusters(fit_mixture(latent, recipe.ladder(dim)[:2][-1], key_base))
    law = fit_mixture(latent, clusters, key_base).law()
    return Kernel(kernel.target, FunctionBlock(g), law, kernel.initial)


def _rows(
    stage: str, rows: list[dict[str, float]], figures: dict[str, float]
) -> list[dict[str, Any]]:
    return [{"stage": stage, **row} for row in rows] + [{"stage": stage, **figures}]


@eqx.filter_jit
def _log_weights(kernel: Kernel, held: Array, key: Array) -> tuple[Array, Array]:
    draws = jax.vmap(lambda k: proposal_draw(kernel, k))(jr.split(key, held.shape[0]))
    weigh = jax.vmap(lambda x: log_weight(kernel, x))
    return weigh(held), weigh(draws)


def independence_figures(
    kernel: Kernel, held: Array, key: Key[Array, ""], most: int = 2000
) -> dict[str, float]:
    """Acceptance and effective draws per draw of a proposal that does not depend on the state.

    At x the chain stays with probability `r(x) = 1 - E_y min(1, w(y)/w(x))`, y ~ q, so that
    `1/E_p[(1 + r)/(1 - r)]` estimates the effective draws per draw. It sees the rare sticky states
    that an average acceptance hides.
    """
    at_x, at_y = (np.asarray(w, np.float64) for w in _log_weights(kernel, held[:most], key))
    at_y = np.sort(np.where(np.isnan(at_y), -np.inf, at_y)[:2000])
    at_x = at_x[np.isfinite(at_x)]
    # E_y min(1, w(y)/w(x)): the draws above w(x) count one each, those below by their ratio
    above = np.searchsorted(at_y, at_x)
    sums = np.logaddexp.accumulate(np.concatenate([[-np.inf], at_y]))[above]
    with np.errstate(over="ignore", invalid="ignore"):
        leave = (at_y.size - above + np.exp(np.minimum(sums - at_x, 50.0))) / at_y.size
    leave = np.clip(np.nan_to_num(leave), 1e-6, 1.0)
    ess = 1.0 / np.mean((2.0 - leave) / leave) if leave.size else 0.0
    return {"acceptance": float(leave.mean()) if leave.size else 0.0, "ess": float(ess)}


@eqx.filter_jit
def _latent_spread(kernel: Kernel, key: Array) -> tuple[Array, Array]:
    """Mean and covariance, in the auxiliary space, of where X and the proposal lie."""
    key_x, key_y = jr.split(key)
    block = kernel.involution
    assert isinstance(block, FunctionBlock) and kernel.initial is not None
    far = jax.vmap(block.g.transform)(kernel.initial.sample(key_x, (1000,)))
    near = kernel.auxiliary.sample(key_y, (1000,))
    points = jnp.concatenate([far, near])
    points = jnp.where(jnp.isfinite(points), points, 0.0)
    centre = jnp.median(points, axis=0)[None, :]
    spread = jnp.median(jnp.abs(points - centre), axis=0)[None, :]
    points = centre + jnp.clip(points - centre, -10 * spread, 10 * spread)
    dim = points.shape[1]
    covariance = 2 * jnp.cov(points.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim)
    return jnp.mean(points, axis=0), covariance


def covered(kernel: Kernel, key: Key[Array, ""], tails: float = 0.0) -> Kernel:
    """Add to the auxiliary law what keeps chains from being stuck where q is too light.

    Far out, a light-tailed q falls faster than p; there w = p/q is large and a chain would hardly
    leave. One wide component covers X, so that the first proposals from there are accepted at once;
    it costs 0.3 % of the proposals. A share `tails` goes to the mixture itself with three times its
    covariances.
    """
    law = kernel.auxiliary
    if not isinstance(law, GaussianMixture):
        return kernel
    if tails > 0:
        law = law.joined(law.inflated(3.0), tails)
    if kernel.initial is not None:
        mean, covariance = _latent_spread(kernel, key)
        law = law.joined(GaussianMixture(jnp.ones(1), mean[None], covariance[None]), 0.003)
    return eqx.tree_at(lambda k: k.auxiliary, kernel, law)


def best_covered(trained: Trained, draws: Array, key: Key[Array, ""]) -> Trained:
    """Choose how much of the proposals goes to the tails by effective draws per draw.

    Judged on all draws at once: states so rare that one in thousands meets them can hold a chain
    for thousands of steps.
    """
    best: Trained | None = None
    for tails in (0.0, 0.02, 0.06, 0.15):
        # the same random numbers for every share, so that only the share differs
        kernel = covered(trained.kernel, jr.fold_in(key, 0), tails)
        figures = independence_figures(kernel, draws, jr.fold_in(key, 1), most=20_000)
        if best is None or figures["ess"] > best.ess:
            best = replace(trained, kernel=kernel, **figures)
    assert best is not None
    return best
