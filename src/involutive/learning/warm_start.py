"""Starts of learning without a search: from draws, or from a kernel learned before."""

from dataclasses import replace

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.auxiliary import GaussianMixture
from involutive.auxiliary.defensive import DefensiveMixture
from involutive.bijections.whitening import Whitening
from involutive.core.errors import check
from involutive.core.keys import split
from involutive.core.types import ArrayLike, Number
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.learning.find.annealing import finite_points
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.search import gradients_useful
from involutive.learning.fit.mixture import Components, components_of
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import SearchSettings
from involutive.learning.stages import Cost, Found
from involutive.sampling.draws import Draws
from involutive.training.likelihood import proposal_law
from involutive.training.samples import check_samples


def as_initial(
    initial: AbstractDistribution | AbstractKernel | Draws | ArrayLike | None,
    settings: SearchSettings,
) -> AbstractDistribution | ArrayLike | None:
    """X as a distribution or as points: a kernel gives its proposal, draws their positions."""
    if isinstance(initial, Learned):
        return proposal_law(initial.proposal)
    if isinstance(initial, Draws):
        rows = initial.positions.reshape(-1, initial.positions.shape[2])
        count = min(len(rows), settings.given_points)
        return rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    found = type(initial).__name__
    check(
        not isinstance(initial, AbstractKernel),
        f"initial must be a distribution, points, draws or a learned kernel, got {found}",
    )
    return initial  # type: ignore[return-value]


def from_samples(problem: Problem, samples: ArrayLike) -> Found:
    """(Approximate) draws of the target, in place of a search."""
    draws = check_samples(samples, problem.target.dim)
    spending = problem.spend(problem.settings.budget.fit, Cost())
    try:
        found = _found(problem, spending, draws, problem.keys.find)
    except OutOfBudget:  # nothing is known of the draws; a mixture of them needs no evaluation
        none = Climbed.none(problem.target.dim, draws.dtype).laplace(problem.settings.search)
        found = Found(draws, draws[:0], *none, -np.inf, False, False, spending.cost)
    return replace(found, given=True)


def from_kernel(problem: Problem, kernel: AbstractKernel, spent: Cost) -> Found:
    """Draws of the proposal of a kernel learned for a similar density, in place of a search.

    Args:
        problem: the density, with sizes.
        kernel: the kernel.
        spent: what was spent before.
    """
    _check_start(problem, kernel)
    assert isinstance(kernel, Learned)
    law = BatchedDistribution(proposal_law(kernel.proposal))
    key_points, key_far = split(problem.keys.find, 2)
    points = law.draws(key_points, problem.settings.particles)
    spending = problem.spend(problem.settings.budget.fit, spent)
    found = _found(problem, spending, points, key_far)
    tops, factors, log_masses = _components(kernel.proposal, problem.settings.search.given_lightest)
    return replace(found, tops=tops, factors=factors, log_masses=log_masses)


def _check_start(problem: Problem, kernel: AbstractKernel) -> None:
    check(
        isinstance(kernel, Learned) and kernel.target.dim == problem.target.dim,
        f"start must be a learned kernel of {problem.target.dim} coordinates, got "
        f"{type(kernel).__name__}; pass what inv.learn or inv.load returned",
    )


def components_of_kernel(problem: Problem, kernel: AbstractKernel) -> Components | None:
    """The normals of a kernel's mixture proposal, without its wide normal; None for others."""
    _check_start(problem, kernel)
    assert isinstance(kernel, Learned)
    lightest = problem.settings.search.given_lightest
    means, roots, log_weights = _components(kernel.proposal, lightest)
    if not len(means):
        return None
    levels = log_weights - np.log(np.sum(np.exp(log_weights)))
    return Components(levels, means, roots @ np.swapaxes(roots, 1, 2))


def _components(proposal: Kernel, lightest: Number) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, square roots of covariances and log weights of a mixture proposal; empty for others.

    They take the place of the modes that a search would have found.
    """
    f, dim = proposal.involution, proposal.target.dim
    plain = isinstance(f, FunctionBlock) and isinstance(f.g, Whitening)
    law = proposal.auxiliary
    law = law.gaussians() if isinstance(law, DefensiveMixture) else law
    if not plain or not isinstance(law, GaussianMixture):
        return np.zeros((0, dim)), np.zeros((0, dim, dim)), np.zeros(0)
    assert isinstance(f, FunctionBlock) and isinstance(f.g, Whitening)
    mixture = components_of(law)
    heavy = mixture.log_weights > np.log(lightest)  # leaves out the wide normal over X
    mean, factor = (np.asarray(part.unwrap(), np.float64) for part in (f.g.mean, f.g.factor))
    tops = mean + mixture.means[heavy] @ factor.T
    roots = factor @ np.linalg.cholesky(mixture.covariances[heavy])
    return tops, roots, mixture.log_weights[heavy]


def _found(problem: Problem, spending: Spending, points: np.ndarray, key: Key[Array, ""]) -> Found:
    """Given points in place of a search: those of a finite density, as many as are affordable.

    Raises:
        OutOfBudget: if too few of them can be looked at.
    """
    settings = problem.settings
    room = spending.density.left / 2  # beside what follows
    if room < settings.search.given_least:
        raise OutOfBudget
    if len(points) > room:
        points = points[np.linspace(0, len(points) - 1, int(room)).astype(int)]
    points = finite_points(spending.density, points.astype(spending.density.dtype))
    check(
        len(points) >= settings.search.given_least,
        f"the log density is finite at {len(points)} of the points to start from, too few to learn "
        "from; learn without start= or samples=",
    )
    far = BatchedDistribution(problem.initial).draws(key, settings.search.dispersed)
    far = finite_points(spending.density, far.astype(points.dtype))
    gradients = gradients_useful(spending.density, points, settings.search)
    none = Climbed.none(points.shape[1], points.dtype).laplace(settings.search)
    return Found(points, far, *none, -np.inf, gradients, True, spending.cost)
