"""The kernel of frugal learning, made from weighted evaluations and judged by their weights.

No pilot chain is run. Every evaluation gives p/q at its point, and its importance weight gives its
share of the target, so that acceptance rate and effective draws per draw follow (`chain_metrics`).
If the proposal is good enough it is the whole kernel, which takes one evaluation per step.
"""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.compilation import on_device
from involutive.auxiliary import GaussianMixture
from involutive.bijections.whitening import whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.learning.fit.mixture import Components, joined
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.refit import affine_image, refit
from involutive.learning.frugal.state import Weighed, frame_of_x, wide_normal
from involutive.learning.judge.compose import compose
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.outcome import Learned, Outcome
from involutive.learning.problem import Problem
from involutive.learning.refine.local import move_within_modes
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Looked, Row
from involutive.learning.weights import log_mean


def kernel_from_weights(problem: Problem, weighed: Weighed) -> Learned:
    """Make the kernel from weighted evaluations, without another evaluation."""
    key_fit, key_pick, key_starts = split(jr.fold_in(problem.keys.judge, 0), 3)
    settings, archive = problem.settings, weighed.archive
    wide = wide_normal(problem, archive, frame_of_x(problem))
    q, metrics, row = _best_mixture(weighed, wide, key_fit, settings)
    ess = metrics["ess"]
    kernel = _independence_proposal(problem, archive, q, key_pick)
    moves: AbstractKernel = kernel
    if ess < settings.poor:
        local = move_within_modes(kernel, False, settings.refine)
        moves = compose(kernel, local, settings.judge.early_chance)
    advice = _advice(weighed, ess, problem)
    outcome = Outcome(
        acceptance=metrics["acceptance"],
        ess_per_draw=ess,
        r_hat=float("nan"),
        rounds=0,
        evaluations=weighed.cost.evaluations,
        seconds=weighed.cost.seconds,
        converged=not advice,
        advice=advice,
        history=[*weighed.history, row],
        reached=weighed.reached,
        ended=weighed.ended or "finished",
        modes=weighed.modes,
        looked=_search_record(weighed, settings),
    )
    starts = _starts_elsewhere(archive, settings)
    warmup = settings.frugal.warmup if ess >= settings.poor else settings.judge.warmup[1]
    return Learned(
        problem.target, _starts_at_draws(archive, weighed.mixture, key_starts, settings), moves,
        warmup, outcome, on_device(starts.astype(kernel_dtype(kernel))),
    )  # fmt: skip


def _best_mixture(
    weighed: Weighed, wide: Components, key: Key[Array, ""], settings: LearnSettings
) -> tuple[Components, dict[str, float], Row]:
    """The mixture that batches judged best, or one fitted to all evaluations if that is better."""
    archive, name = weighed.archive, "the best of the batches"
    q, metrics = with_tails(archive, weighed.mixture, wide, settings)
    fresh = weighed.ess
    if weighed.batches:
        refitted, beta, held = refit(archive, weighed.teaching, wide, key, settings)
        again, found = with_tails(archive, refitted, wide, settings)
        if beta == 1.0 and found["ess"] > metrics["ess"]:
            name = f"{len(refitted.means)} components fitted to all {len(archive)} evaluations"
            q, metrics, fresh = again, found, held
    # no more than on evaluations that the mixture was not fitted to
    metrics = metrics | {"ess": min(metrics["ess"], fresh)}
    return q, metrics, {"stage": name} | metrics


def with_tails(
    archive: Archive, mixture: Components, wide: Components, settings: LearnSettings
) -> tuple[Components, dict[str, float]]:
    """The mixture with a wide normal and with the best share of stretched components.

    Only a mixture that is good enough does without stretched components: a chain could stay for
    long in a state where q is far too small and which no evaluation has shown.
    """
    stretched = joined(
        [mixture.inflated(factor) for factor in settings.frugal.stretches],
        np.full(len(settings.frugal.stretches), 1 / len(settings.frugal.stretches)),
    )
    best, most = mixture, {"acceptance": 0.0, "ess": -1.0}
    for tails in settings.frugal.tails:
        rest = 1 - settings.wide_share
        parts, shares = [mixture, wide], [rest, settings.wide_share]
        if tails:
            parts, shares = (
                [mixture, stretched, wide],
                [rest * (1 - tails), rest * tails, settings.wide_share],
            )
        q = joined(parts, shares)
        log_q, log_s = q.log_density(archive.points), archive.log_s
        at = archive.log_p - log_q
        found = chain_metrics(at, archive.log_weights, at, log_q - log_s)
        if found["ess"] > most["ess"]:
            best, most = q, found
        if tails == 0.0:
            if found["ess"] >= settings.good_enough:
                break
            most = {"acceptance": 0.0, "ess": -1.0}
    return best, most


def kernel_dtype(kernel: Kernel) -> np.dtype:
    """The precision of a kernel's proposal."""
    assert isinstance(kernel.auxiliary, GaussianMixture)
    return np.dtype(kernel.auxiliary.means.dtype)


def _independence_proposal(
    problem: Problem, archive: Archive, q: Components, key: Key[Array, ""]
) -> Kernel:
    """An independence proposal from q, behind a whitening of the weighted draws."""
    sample = archive.tempered(1.0)
    picked = sample.picked(problem.settings.fit.far_draws, generator(key))
    g = whitening(picked.astype(np.result_type(float)))
    mean, inverse = (np.asarray(part.unwrap(), np.float64) for part in (g.mean, g.inverse_factor))
    white = affine_image(q._replace(means=q.means - mean), np.zeros(len(mean)), inverse)
    return Kernel(problem.target, FunctionBlock(g), white.distribution(), problem.initial)


def _starts_at_draws(
    archive: Archive, mixture: Components, key: Key[Array, ""], settings: LearnSettings
) -> GaussianMixture:
    """Narrow normals around draws resampled by weight, from which most chains start."""
    frugal = settings.frugal
    picked = archive.tempered(1.0).picked(frugal.starts, generator(key))
    pooled = np.einsum("k,kij->ij", np.exp(mixture.log_weights), mixture.covariances)
    narrow = np.tile(frugal.start_width**2 * pooled, (len(picked), 1, 1))
    return Components(np.full(len(picked), -np.log(len(picked))), picked, narrow).distribution()


def _starts_elsewhere(archive: Archive, settings: LearnSettings) -> np.ndarray:
    """Starting places that do not depend on the proposal: the first evaluations, draws of X."""
    finite = archive.points[: archive.of_x][np.isfinite(archive.log_p[: archive.of_x])]
    rows = finite if len(finite) else archive.points[np.isfinite(archive.log_p)]
    return rows[: settings.search.dispersed]


def _search_record(weighed: Weighed, settings: LearnSettings) -> Looked:
    archive = weighed.archive
    return Looked(
        starts=min(archive.of_x, settings.search.dispersed),
        widths=(*settings.frugal.widths, 1.0),
        second=weighed.ascents,
        new=weighed.new,
        log_z_weights=log_mean(archive.log_weights),
        places=len(archive),
        climbs=weighed.ascents,
        frugal=True,
    )


def _advice(weighed: Weighed, ess: float, problem: Problem) -> str:
    """What the user may try; empty if the weights show no fault of the proposal."""
    frugal = problem.settings.frugal
    if weighed.ended == "interrupted":
        return "learning was interrupted; run it again, or resume from its checkpoint"
    effective = weighed.archive.effective
    enough = effective >= frugal.trusted and ess >= frugal.least_ess
    more = "pass a larger budget=, or initial= that covers every mode"
    if weighed.ended == "budget" and not (enough and weighed.searches):
        spent = weighed.cost.evaluations
        longer = problem.settings.judge.advised_factor * spent
        least = int(max(frugal.advised * problem.target.dim, longer))
        return (
            f"the budget ended after {spent:,} evaluations, before the proposal was fitted and a "
            f"second search was made; allow at least Budget(evaluations={least:_})"
        )
    if weighed.new:
        return f"the last search still found {weighed.new} new modes; {more}"
    if effective < frugal.trusted:
        return (
            f"the evaluations are worth {effective:.0f} effective draws, too few to judge; {more}"
        )
    if ess < frugal.least_ess:
        return f"only {ess:.3f} effective draws per draw; {more}"
    return ""
