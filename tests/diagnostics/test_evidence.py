"""log Z of targets whose integral is known, and refusals of proposals with a planted fault."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.bijections import Affine, Identity
from flowjax.distributions import Normal

import involutive as inv
from involutive.core.statistics import pareto_k
from involutive.core.text import decimal
from involutive.diagnostics.coverage import _factor
from involutive.diagnostics.estimators import bridge, importance
from involutive.diagnostics.evidence import _known_proposal
from involutive.kernel.proposals import proposal_distribution
from involutive.learning.outcome import Learned, Outcome

MOG6 = inv.targets.mog6()
LOG_Z = float(np.log(2 * np.pi * 0.25))
ANGLE = np.arange(6) * np.pi / 3
MEANS = 5 * np.stack([np.cos(ANGLE), np.sin(ANGLE)], axis=1)


def proposal(means, variances, target=MOG6, weights=None, g=None):
    """A kernel that proposes from a mixture of round Gaussians."""
    means = np.asarray(means, float)
    count, dim = means.shape
    covariances = np.multiply.outer(np.broadcast_to(variances, (count,)), np.eye(dim))
    law = inv.GaussianMixture(
        np.full(count, 1 / count) if weights is None else np.asarray(weights), means, covariances
    )
    return inv.Kernel(target, inv.FunctionBlock(Identity((dim,)) if g is None else g), law)


def test_both_sides_are_right_and_say_how_right():
    result = inv.evidence(proposal(MEANS, 0.3), key=0, num_samples=5000)
    assert result.trustworthy and not result.withheld
    for estimate in (result.importance, result.bridge):
        assert 0 < estimate.error < 0.005
        assert abs(estimate.log_z - LOG_Z) < 3 * estimate.error
    assert result.lower < result.log_z < result.upper
    assert result.bridge.error < result.importance.error
    assert result.pareto_k < 0.3 and 0.9 < result.effective_share <= 1


def weigh(z):
    """log p - log q, for p the unnormalised standard normal and q = N(0, 1.3²)."""
    return -0.5 * z**2 + 0.5 * (z / 1.3) ** 2 + np.log(1.3 * np.sqrt(2 * np.pi))


def test_the_interval_covers():
    """Coverage of importance sampling and of the bridge, on weights whose law is known."""
    rng = np.random.default_rng(0)
    inside = {"importance": 0, "bridge": 0}
    for _ in range(200):
        y, x = 1.3 * rng.normal(size=2000), rng.normal(size=(8, 250))
        for name, estimate in (
            ("importance", importance(weigh(y))),
            ("bridge", bridge(weigh(y), weigh(x))),
        ):
            inside[name] += abs(estimate.log_z - 0.5 * np.log(2 * np.pi)) < 1.96 * estimate.error
    assert 180 <= inside["importance"] <= 198 and 180 <= inside["bridge"] <= 198, inside


def test_autocorrelated_chains_have_a_larger_error():
    rng = np.random.default_rng(1)
    y, x = rng.normal(size=4000) * 1.3, rng.normal(size=(8, 500))
    slow = np.repeat(x[:, ::10], 10, axis=1)
    assert bridge(weigh(y), weigh(slow)).error > 1.1 * bridge(weigh(y), weigh(x)).error


@pytest.mark.deep
def test_the_proposal_of_a_learned_bijection_counts_its_jacobian():
    target = inv.targets.gaussian(2)
    kernel = proposal([[0.0, 0.0]], 1.0, target, g=Affine(jnp.zeros(2), jnp.full(2, 1 / 1.2)))
    result = inv.evidence(kernel, key=3, num_samples=5000)
    assert abs(result.log_z - np.log(2 * np.pi)) < 4 * result.error and result.trustworthy


def test_the_known_q_is_found_inside_compositions():
    kernel = proposal(MEANS, 0.3)
    q = proposal_distribution(inv.Cycle([inv.hmc(MOG6, 0.1, 3), kernel]))
    mixed = inv.Mixture([kernel, inv.random_walk(MOG6, 1.0)], [0.5, 0.5])
    for found in (q, proposal_distribution(mixed)):
        np.testing.assert_allclose(
            found.log_prob(jnp.asarray(MEANS[0])), kernel.auxiliary.log_prob(jnp.asarray(MEANS[0]))
        )
    network = inv.paper_network(jr.key(0), state_dim=2, aux_dim=4)
    assert proposal_distribution(inv.Kernel(MOG6, network, inv.standard_normal(4))) is None


def test_what_is_missing_is_named():
    with pytest.raises(inv.InputError, match="evidence needs a proposal with a known density q"):
        inv.evidence(inv.hmc(MOG6, 0.1, 3), key=0)
    ended = Outcome(0.5, 0.0, 2.0, 0, 10, 1.0, False, "", ended="budget")
    learned = Learned(MOG6, None, inv.hmc(MOG6, 0.1, 3), 0, ended)
    with pytest.raises(inv.InputError, match="as HMC does; learn with a larger budget="):
        _known_proposal(learned)
    other = inv.sample(
        inv.random_walk(inv.targets.gaussian(3), 1.0), key=0, num_chains=2, num_samples=9
    )
    with pytest.raises(inv.InputError, match="of dim 2, got dim 3"):
        inv.evidence(proposal(MEANS, 0.3), key=0, draws=other)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(proposal(MEANS[:5], 0.3), id="a mode"),
        pytest.param(proposal(MEANS, [0.3] * 5 + [0.05]), id="the tail of a mode"),
    ],
)
def test_a_planted_fault_is_refused(kernel, seed):
    result = inv.evidence(kernel, key=seed, num_samples=5000)
    assert not result.trustworthy and result.reasons


def test_a_missed_mode_is_named_and_withheld():
    result = inv.evidence(proposal(MEANS[:5], 0.3), key=0, num_samples=5000)
    assert result.withheld and np.isnan(result.log_z)
    assert any("outside the proposal, near [ 2.5  -4.33]" in reason for reason in result.reasons)
    assert abs(result.importance.log_z - LOG_Z - np.log(5 / 6)) < 0.01, "what q saw is still shown"
    assert "withheld" in str(result) and "<b>Not trustworthy" in result._repr_html_()


def test_draws_that_know_better_disagree():
    good = inv.sample(proposal(MEANS, 0.3), key=0, num_chains=16, num_samples=200)
    result = inv.evidence(proposal(MEANS[:5], 0.3), key=1, draws=good, num_samples=5000)
    assert abs(result.bridge.log_z - LOG_Z) < 0.06, "a missed mode leaves the bridge alone"
    assert any("standard errors apart" in reason for reason in result.reasons)


def test_a_tiny_hill_outside_does_not_matter():
    target = inv.targets.mixture([[0.0, 0.0], [12.0, 0.0]], [1 - 1e-6, 1e-6])
    result = inv.evidence(proposal([[0.0, 0.0]], 1.1, target), key=0, num_samples=5000)
    assert result.trustworthy
    target = inv.targets.mixture([[0.0, 0.0], [12.0, 0.0]], [0.95, 0.05])
    result = inv.evidence(proposal([[0.0, 0.0]], 1.1, target), key=0, num_samples=5000)
    assert not result.trustworthy


def test_a_proposal_that_reaches_across_a_wall():
    """Chains start from draws of q inside the support; those outside weigh nothing."""
    wall = inv.Target(lambda x: jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), -jnp.inf), 2)
    result = inv.evidence(proposal([[0.0, 0.0]], 1.1, wall), key=0, num_samples=5000)
    assert abs(result.log_z - np.log(np.pi)) < 4 * result.error < 0.1


def test_an_exact_proposal():
    result = inv.evidence(proposal(MEANS, 0.25), key=0, num_samples=5000)
    assert result.trustworthy and abs(result.log_z - LOG_Z) < 1e-8


def test_the_meaning_is_said():
    result = inv.evidence(proposal(MEANS, 0.3), key=0, num_samples=5000)
    assert "no prior was declared" in str(result) and not result.record()["reasons"]


def test_with_a_prior_it_is_the_marginal_likelihood():
    """One datum 1 ~ N(mu, 1) with mu ~ N(0, 1): the marginal likelihood is N(1; 0, 2)."""

    def log_likelihood(mu):
        return -0.5 * (1.0 - mu) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    target = inv.Target(log_likelihood, inv.Parameters(mu=inv.Normal(0.0, 1.0)))
    kernel = proposal([[0.5]], 0.7, target)
    result = inv.evidence(kernel, key=0, num_samples=5000)
    assert result.marginal and "log marginal likelihood" in str(result)
    exact = -0.25 - 0.5 * np.log(4 * np.pi)
    assert abs(result.log_z - exact) < 4 * result.error and result.trustworthy


def test_pareto_k():
    rng = np.random.default_rng(0)
    for k in (0.3, 0.6, 1.0):
        assert abs(pareto_k(np.log1p(rng.pareto(1 / k, size=20_000))) - k) < 0.15
    assert pareto_k(np.zeros(100)) == -np.inf and pareto_k(np.zeros(5)) == np.inf


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (5.0, 0.001, "5.0000"),
        (10_000.0, 100.0, "10000"),
        (12_345.0, 100.0, "12340"),
        (-0.1234, 0.05, "-0.123"),
        (float("nan"), 0.1, "-"),
        (3.14159, 0.0, "3.142"),
        (2.5e9, 1e7, "2.500e+09"),
    ],
)
def test_digits_follow_the_error(value, error, text):
    assert decimal(value, error) == text


def test_chains_start_inside_the_support():
    """Half of the proposal's draws lie outside it."""
    half = inv.Target(lambda x: jnp.where(x[0] > 0, -0.5 * x[0] ** 2, -jnp.inf), 1, name="half")
    result = inv.evidence(proposal([[0.0]], 1.0, half), key=0, num_samples=2000)
    assert abs(result.importance.log_z - 0.5 * np.log(np.pi / 2)) < 5 * result.importance.error


def test_a_hill_whose_hessian_overflows_has_a_mass():
    """One such hill made the mass of all hills NaN, which counts as none."""
    for steep in (np.diag([-np.inf, -1.0]), np.full((2, 2), -np.inf), np.diag([np.nan, -4.0])):
        with np.errstate(all="raise"):
            factor = _factor(steep, np.ones(2))
        assert np.isfinite(factor).all() and abs(np.linalg.slogdet(factor)[1]) < 1.0


def test_an_initial_law_shows_what_lies_apart():
    """A mode far outside q is found from X."""
    target = inv.targets.mixture([[0.0, 0.0], [60.0, 60.0]])
    kernel = proposal([[0.0, 0.0]], 1.1, target)
    law = Normal(jnp.full(2, 30.0), jnp.full(2, 40.0))
    kernel = inv.Kernel(target, kernel.involution, kernel.auxiliary, law)
    assert inv.evidence(kernel, key=0, num_samples=5000).withheld
