"""Beyond one mixture: ridges, hierarchies, symmetries and replicas in `learn`."""

import numpy as np
import pytest

import involutive as inv
from involutive._xla.batched import BatchedDensity
from involutive.bench.reach.__main__ import WITHIN, effective, errors
from involutive.bench.reach.cases import CASES
from involutive.kernel.composite import Cycle
from involutive.kernel.symmetry_move import SymmetryMove
from involutive.learning.find.climbs import (
    Climbed,
    different_tops,
    local_scales,
    newton,
    scales_resolved,
)
from involutive.learning.judge.compose import compose

SEARCH = inv.SearchSettings()


def test_newton_steps_reach_the_top_of_an_oblique_ridge():
    """From 64 places where ascents may have ended, all to one top, with the covariance there."""
    target = inv.targets.correlated_gaussian(6, condition=1e4)
    density = BatchedDensity(target.log_density, 6, 64)
    points = np.random.default_rng(0).normal(size=(64, 6)).astype(density.dtype)
    tops, heights, scales, axes = newton(density, points, density.values(points), SEARCH)
    assert np.abs(heights).max() < 1e-3
    none = np.zeros(64)
    climbed = Climbed(points, tops, points, none, scales, axes)
    assert len(different_tops(climbed, SEARCH)) == 1
    np.testing.assert_allclose(np.sort(scales[0]), np.geomspace(1, 100, 6), rtol=1e-2)


def test_a_density_without_bound_is_not_resolved():
    """Where a funnel's scale vanishes, its height is rounding."""
    target = inv.targets.funnel(4)
    density = BatchedDensity(target.log_density, 4, 64)
    points = np.array([[0.0, 1, 1, 1], [-60.0, 1, 1, 1]]).astype(np.float32)
    scales, _ = local_scales(density.hessians(points))
    assert scales_resolved(points, scales, SEARCH).tolist() == [True, False]


def test_symmetries_move_between_local_move_and_a_poor_proposal():
    target = inv.targets.gaussian(2)
    local, proposal = inv.random_walk(target, 0.5), inv.random_walk(target, 2.0)
    found = inv.symmetries(target, key=0)
    kernel = compose(proposal, local, 1.0, found)
    assert isinstance(kernel, Cycle)
    assert [type(part) for part in kernel.kernels][1] is SymmetryMove
    assert not any(isinstance(part, SymmetryMove) for part in compose(proposal, local, 1.0).kernels)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "least"), [("eight_schools", 0.2), ("labels_3", 0.3)])
def test_a_density_beyond_one_mixture_is_learned(name, least):
    """What was 0.010 and 0.03 effective draws per draw with one mixture."""
    case = CASES[name]()
    kernel = inv.learn(case.target, key=0, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=1000, progress=False)
    assert effective(case, draws) > least
    assert errors(case, draws)[0] < WITHIN
