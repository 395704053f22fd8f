"""Mixtures fitted to weighted draws: EM, what the weights say of a proposal, and what it missed."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive._xla.batched import BatchedDensity
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.second_search import MissedModes
from involutive.learning.fit.em import fit_components, run_em
from involutive.learning.fit.importance import (
    component_counts,
    components_of_missed,
    fit_by_weights,
    with_components,
)
from involutive.learning.fit.mixture import Components, components_of, joined, merged
from involutive.learning.fit.responsibilities import Products, Whitened, responsibilities
from involutive.learning.fit.weighted import FittedMixture, Space
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.settings import FitSettings, LearnSettings

FIT = FitSettings()

CENTRES = np.array([[-8.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
MIXTURE = Components(np.log([0.2, 0.3, 0.5]), CENTRES, np.tile(np.eye(2), (3, 1, 1)))


def space_of(target):
    rows = BatchedDensity(target.log_density, target.dim, 512)
    far = 3 * np.random.default_rng(0).normal(size=(500, target.dim))
    return Space.around(rows, np.zeros(target.dim), np.eye(target.dim), LearnSettings(), far)


def test_a_mixture_is_its_law():
    points = MIXTURE.draws(200, np.random.default_rng(0))
    law = MIXTURE.distribution()
    expected = [float(law.log_prob(jnp.asarray(x))) for x in points[:20]]
    np.testing.assert_allclose(MIXTURE.log_density(points)[:20], expected, rtol=1e-4)
    again = components_of(law)
    for part, same in zip(MIXTURE, again, strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 3, 12])
def test_both_forms_share_points_out_alike(dim):
    rng = np.random.default_rng(dim)
    roots = 0.3 * rng.normal(size=(5, dim, dim)) + np.eye(dim)
    mixture = Components(
        np.log(rng.dirichlet(np.ones(5))), 2 * rng.normal(size=(5, dim)), roots @ roots.mT
    )
    points = mixture.draws(300, rng)
    found = []
    for form in (Products(*mixture), Whitened(*mixture)):
        terms = form.terms(points)
        share, level = responsibilities(form.log_densities(terms))
        found.append((share, level, *form.moments(share.astype(np.float64), terms)))
    for part, same in zip(*found, strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-3, atol=1e-3 * np.abs(same).max())


def test_products_know_a_narrow_component_far_out():
    """One of width 3e-4 at a distance of 30: a quadratic form of 1e10 is a difference of terms."""
    mixture = Components(np.zeros(1), np.full((1, 2), 30.0), 1e-7 * np.eye(2)[None])
    points = mixture.means + 3e-4 * np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 2.0]])
    level = responsibilities(Products(*mixture).log_densities(Products(*mixture).terms(points)))[1]
    np.testing.assert_allclose(level - level[0], [0.0, -0.45, -2.25], atol=1e-3)


def test_draws_of_a_mixture_have_its_moments():
    points = MIXTURE.draws(40_000, np.random.default_rng(0))
    nearest = np.argmin(np.linalg.norm(points[:, None] - CENTRES, axis=2), axis=1)
    np.testing.assert_allclose(np.bincount(nearest) / len(points), [0.2, 0.3, 0.5], atol=0.01)
    for k, centre in enumerate(CENTRES):
        np.testing.assert_allclose(points[nearest == k].mean(axis=0), centre, atol=0.05)
        np.testing.assert_allclose(np.cov(points[nearest == k].T), np.eye(2), atol=0.06)


def test_light_components_between_modes_do_not_link_them():
    between = np.linspace(-4.0, 4.0, 3)[:, None] * np.array([[1.0, 0.0]])
    means = np.concatenate([CENTRES, between, [[0.0, -40.0]]])
    weights = np.array([0.2, 0.3, 0.485, 0.004, 0.003, 0.003, 0.005])
    bridged = Components(np.log(weights), means, np.tile(np.eye(2), (7, 1, 1)))
    assert len(merged(bridged, FIT.overlap).means) == 3  # two modes and what lies between are one
    apart = merged(bridged, FIT.overlap, light=0.02)
    assert len(apart.means) in (4, 5)  # one in the middle may be near none; the far one stays
    assert np.linalg.norm(apart.means - [0.0, -40.0], axis=1).min() < 1e-6
    np.testing.assert_allclose(np.exp(apart.log_weights).sum(), 1.0)


def test_weights_count_as_copies():
    rng = np.random.default_rng(0)
    points, counts = MIXTURE.draws(600, rng), rng.integers(1, 4, 600)
    start = fit_components(points, 3, jr.key(0), FIT, iterations=1)
    weighted = run_em(start, points, counts.astype(float), 5, FIT)
    copied = run_em(start, np.repeat(points, counts, axis=0), None, 5, FIT)
    np.testing.assert_allclose(weighted.means, copied.means, atol=0.01)


def test_a_component_with_few_points_stays_nearly_as_it_was():
    rng = np.random.default_rng(0)
    points = np.concatenate([CENTRES[:2][rng.integers(0, 2, 400)], CENTRES[2:].repeat(3, 0)])
    points = points + rng.normal(size=points.shape)
    held, free = (run_em(MIXTURE, points, None, 6, FIT, prior) for prior in (20.0, 1e-3))
    assert np.abs(held.means[2] - CENTRES[2]).max() < 0.2
    assert np.abs(held.covariances[2] - np.eye(2)).max() < 0.3
    assert np.linalg.eigvalsh(free.covariances[2])[0] < 0.5  # three points alone
    np.testing.assert_allclose(held.means[:2], CENTRES[:2], atol=0.2)


def test_overlapping_components_become_one_with_their_moments():
    twice = joined([MIXTURE, MIXTURE._replace(means=CENTRES + 0.5)], (0.5, 0.5))
    few = merged(twice, FIT.overlap)
    assert len(few.means) == 3
    order = np.argsort(few.log_weights)
    np.testing.assert_allclose(np.exp(few.log_weights[order]), [0.2, 0.3, 0.5])
    np.testing.assert_allclose(few.means[order], CENTRES + 0.25)
    np.testing.assert_allclose(few.covariances[0], np.eye(2) + 0.0625)


def test_figures_of_a_perfect_and_of_a_poor_proposal():
    same = np.zeros(100)
    perfect = chain_metrics(same, same, same, same)
    assert perfect == pytest.approx({"acceptance": 1.0, "ess": 1.0})
    rng = np.random.default_rng(0)
    at_x, at_y, equal = rng.normal(size=4000) + 1, rng.normal(size=4000), np.zeros(4000)
    poor = chain_metrics(at_x, equal, at_y, equal)
    assert poor["ess"] < poor["acceptance"] < 0.7


def test_weighted_draws_judge_a_proposal_as_exact_draws_do():
    target = inv.targets.mixture(CENTRES.tolist(), [0.2, 0.3, 0.5], 1.0)
    space, rng = space_of(target), np.random.default_rng(1)
    wrong = MIXTURE._replace(log_weights=np.log([0.4, 0.3, 0.3]))
    judged = space.judged(wrong, space.sample(wrong, 20_000, rng))
    exact = np.asarray(target.sample(jr.key(0), 20_000), np.float64)
    law = space.with_wide_normal(wrong)
    own = law.draws(20_000, rng)
    at_x, at_y = (space.log_p(x) - law.log_density(x) for x in (exact, own))
    expected = chain_metrics(at_x, np.zeros(20_000), at_y, np.zeros(20_000))
    assert judged.ess == pytest.approx(expected["ess"], abs=0.02)
    assert judged.acceptance == pytest.approx(expected["acceptance"], abs=0.02)


def test_points_with_wrong_weights_lead_to_the_right_ones():
    target = inv.targets.mixture(CENTRES.tolist(), [0.2, 0.3, 0.5], 1.0)
    rng = np.random.default_rng(0)
    found = np.repeat(CENTRES, (20, 300, 80), axis=0) + 0.8 * rng.normal(size=(400, 2))
    settings = LearnSettings(fit_draws=8192, good_enough=0.95)
    fitted = fit_by_weights(space_of(target), found, jr.key(0), (8,), settings)
    assert len(fitted.mixture.means) == 3 and fitted.ess > 0.9
    order = np.argsort(fitted.mixture.log_weights)
    np.testing.assert_allclose(
        np.exp(fitted.mixture.log_weights[order]), [0.2, 0.3, 0.5], atol=0.02
    )


def test_a_mode_that_was_found_and_left_out_is_noticed():
    target = inv.targets.mixture(CENTRES.tolist(), [0.2, 0.3, 0.5], 1.0)
    space, rng = space_of(target), np.random.default_rng(0)
    found = MIXTURE.draws(400, rng)
    two = joined([Components(*(part[:2] for part in MIXTURE))], (2.0,))
    for mixture, missed in ((MIXTURE, False), (two, True)):
        cloud = space.sample(mixture, 4000, rng)
        cloud = cloud._replace(log_p=np.where(cloud.points[:, 1] > 4, -np.inf, cloud.log_p))
        seen = cloud if missed else space.sample(mixture, 4000, rng)
        share = space.uncovered(FittedMixture(mixture, seen, 1.0, 1.0), found).mean()
        assert (share > 0.2) if missed else (share < 0.005)


def test_points_that_were_missed_join_the_mixture_where_nothing_climbs():
    """Annealing has no tops: before, such points were named and nothing was done about them."""
    target = inv.targets.mixture(CENTRES.tolist(), [0.2, 0.3, 0.5], 1.0)
    space, rng = space_of(target), np.random.default_rng(0)
    two = joined([Components(*(part[:2] for part in MIXTURE))], (2.0,))
    fitted = space.judged(two, space.sample(two, 2000, rng))
    points = CENTRES[2] + rng.normal(size=(12, 2))
    seen = MissedModes(points, Climbed.none(2, points.dtype), 40)
    new = components_of_missed(space, fitted, seen, jr.key(0))
    assert 1 < len(new.means) <= 12 and np.abs(new.means - CENTRES[2]).max() < 4
    after = with_components(space, fitted, new, rng)
    assert after.ess > 0.9 and not space.uncovered(after, points).any()


def test_a_density_that_vanishes_where_it_was_drawn_is_no_crash():
    nowhere = space_of(inv.Target(lambda x: jnp.where(x[0] + x[1] > 1e6, 0.0, -jnp.inf), 2))
    found = np.random.default_rng(0).normal(size=(200, 2))
    settings = LearnSettings(fit_draws=2048, good_enough=0.9)
    fitted = fit_by_weights(nowhere, found, jr.key(0), (2,), settings)
    assert fitted.ess == 0.0
    assert len(fitted.sample.picked(10, np.random.default_rng(0))) == 10


def test_the_number_of_components_follows_the_modes_found():
    settings = LearnSettings()
    assert component_counts(10, 3000, 50, settings)[0] >= 20  # whatever the dimension
    assert component_counts(1, 3000, 2, settings) == (32, 128)
    assert component_counts(0, 100, 40, settings) == (2,)  # so few points bear no more
    assert component_counts(5, 3000, 2, LearnSettings(components=(3, 7))) == (3, 7)
