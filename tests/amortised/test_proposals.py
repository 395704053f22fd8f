"""Attention pooling and spline couplings: laws that hold whatever a network has learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_amortised import data_set, family, invariance

import involutive as inv
from involutive.amortised.kernel import Trained
from involutive.amortised.network import Estimator
from involutive.amortised.objective import proposal_of
from involutive.amortised.refine import refined
from involutive.amortised.rows import network_for, simulated
from involutive.amortised.summary import Summary
from involutive.auxiliary.defensive import DefensiveMixture

TINY = {"components": 2, "width": 8, "depth": 1, "summary": 3, "seen": 64, "held": 32}
KINDS = {
    "mixture": inv.AmortiseSettings(**TINY),
    "attention": inv.AmortiseSettings(**TINY, heads=2),
    "splines": inv.AmortiseSettings(**TINY, splines=2, knots=4, context=4, coupling_width=8),
}


@pytest.fixture(scope="module")
def posteriors():
    return family()


def untrained(posteriors, kind, size=1.0):
    """A network whose parameters are random, and `size` times as large as usual."""
    settings = KINDS[kind]
    rows = simulated(posteriors, settings, jr.key(0))
    network = network_for(posteriors, rows, settings, jr.key(1))
    grown = jax.tree.map(
        lambda leaf: size * leaf, (network.head.layers[-1].weight, network.head.layers[-1].bias)
    )
    where = lambda n: (n.head.layers[-1].weight, n.head.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(where, network, grown)


def kernel_of(posteriors, network: Estimator):
    return inv.FamilyKernel(posteriors, network, Trained(0.0, 0.0, 0, 0.0, True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_density_of_a_proposal_is_that_of_its_draws(posteriors, kind):
    """q integrates to one and its log density is the mixture's, times autodiff's determinant."""
    network = untrained(posteriors, kind, 3.0)
    observed = posteriors.layout.padded(data_set(4))
    q = proposal_of(network, posteriors, jax.tree.map(jnp.asarray, observed), 0.05)

    @jax.jit
    def both(x):
        y = q.g.transform(x)
        by_hand = q.mixture.log_prob(y) + jnp.linalg.slogdet(jax.jacobian(q.g.transform)(x))[1]
        return q.log_prob(x), q.law.log_prob(x), by_hand, q.g.inverse(y) - x

    x = jax.vmap(q.law.sample)(jr.split(jr.key(3), 50))
    ours, law, by_hand, error = jax.vmap(both)(x)
    assert np.allclose(ours, law) and np.allclose(ours, by_hand, atol=1e-8)
    assert np.abs(error).max() < 1e-7 * (1 + np.abs(x).max())


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["attention", "splines"])
def test_untrained_proposals_leave_the_posterior_invariant(posteriors, kind, getkey):
    target = posteriors.at(data_set())
    grid = np.stack(np.meshgrid(np.linspace(-3, 5, 400), np.linspace(-4, 3, 400)), -1)
    points = grid.reshape(-1, 2)
    log_p = target.evaluate_rows(points)
    weights = np.exp(log_p - log_p.max())
    rng = np.random.default_rng(1)
    exact = points[rng.choice(len(points), 10_000, p=weights / weights.sum())]
    exact = exact + np.array([8 / 399, 7 / 399]) * (rng.uniform(size=exact.shape) - 0.5)
    kernel = kernel_of(posteriors, untrained(posteriors, kind)).at(data_set())
    assert invariance(kernel, exact, getkey(), least=0.1) < 4.5


def test_attention_sees_observations_in_no_order_and_nothing_outside_the_mask(posteriors):
    summary = untrained(posteriors, "attention").summary
    rows = jr.normal(jr.key(4), (6, summary.columns))
    mask = jnp.array([True, True, True, True, False, False])
    pooled = lambda rows, mask: summary.pooled(summary(rows, mask))  # noqa: E731
    expected = pooled(rows, mask)
    assert expected.shape == (summary.size,)
    order = jnp.array([3, 5, 0, 4, 1, 2])
    assert np.allclose(pooled(rows[order], mask[order]), expected)
    assert np.allclose(pooled(rows.at[4:].set(1e6), mask), expected)
    assert np.allclose(pooled(rows[:4], mask[:4]), expected)
    assert not np.allclose(pooled(rows, mask.at[4].set(True)), expected)


def test_attention_weighs_observations_as_softmax_does(posteriors):
    summary = untrained(posteriors, "attention").summary
    rows = jr.normal(jr.key(5), (5, summary.columns))
    found = summary.pooled(summary(rows, jnp.ones(5, bool)))
    white = (rows - summary.mean.unwrap()[None]) / summary.scale.unwrap()[None]
    values, most = jax.vmap(summary.phi)(white), summary.largest_score
    scores = most * jnp.tanh(jax.vmap(summary.score)(white) / most)
    attended = jax.nn.softmax(scores, axis=0).T @ values
    cut = summary.columns + summary.values
    assert np.allclose(found[cut:-1], attended.ravel())


def test_sums_of_parts_are_those_of_the_whole(posteriors):
    many = kernel_of(posteriors, untrained(posteriors, "attention"))
    old, new = data_set(5), data_set(3, at=0.0)
    both = {"y": np.concatenate([old["y"], new["y"]])}
    x = jnp.array([0.4, 0.1])
    streamed = many.stream(old).add(new).proposal
    assert np.isclose(float(many.at(both).initial.log_prob(x)), float(streamed.log_prob(x)))


def test_data_sets_of_one_shape_are_not_pooled():
    rows = np.random.default_rng(0).normal(size=(100, 1))
    settings = inv.AmortiseSettings(**TINY, heads=1)
    summary = Summary(rows, True, settings, jr.key(0))
    assert summary.size == 1 + 3 + 3 + 1
    assert Summary(rows, False, settings, jr.key(0)).size == 1


@pytest.mark.parametrize("kind", ["attention", "splines"])
def test_networks_are_saved_and_loaded(posteriors, kind, tmp_path):
    many = kernel_of(posteriors, untrained(posteriors, kind))
    inv.save(tmp_path / "many.inv", many)
    again = inv.load(tmp_path / "many.inv", posteriors)
    x = jnp.array([0.3, -0.4])
    before, after = (k.at(data_set()).initial.log_prob(x) for k in (many, again))
    assert float(before) == float(after)
    inv.save(tmp_path / "one.inv", many.at(data_set()))
    one = inv.load(tmp_path / "one.inv", posteriors.at(data_set()))
    assert float(one.initial.log_prob(x)) == float(before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 2, "summary": 0}, "summary must be at least 1"),
        ({"trial": 100}, "set splines"),
        ({"components": 200}, "at most 127"),
        ({"rate": 0.0}, "rate must be positive"),
        ({"held_out": 1.0}, "between 0 and 1"),
    ],
)
def test_settings_that_do_not_fit_are_named(options, words):
    with pytest.raises(inv.InputError, match=words):
        inv.AmortiseSettings(**options)


def test_splines_of_one_coordinate_are_refused(as_users_run):
    line = inv.Family(lambda x, data: -jnp.sum((x - data) ** 2), 1, data=[np.ones(1)] * 8)
    with pytest.raises(inv.InputError, match="splines need at least two coordinates"):
        inv.amortise(line, key=0, settings=inv.AmortiseSettings(**TINY, splines=2), progress=False)


@pytest.mark.deep
@pytest.mark.parametrize(("at", "kept"), [(0.0, True), (1.5, False)])
def test_a_fit_is_used_only_where_it_is_nearer_the_posterior(at, kept):
    """EM on a few draws makes a mixture worse that was right, and a wrong one better."""
    law = DefensiveMixture(jnp.zeros(2), jnp.zeros((2, 2)), jnp.tile(jnp.eye(2), (2, 1, 1)), 0.05)
    log_p = lambda y: -0.5 * jnp.sum((y - at) ** 2)  # noqa: E731
    settings = inv.ManySettings(rounds=3, refining=100)
    found = jax.jit(lambda key: refined(law, log_p, key, settings))(jr.key(2))
    assert (np.asarray(found.means) == 0).all() == kept
    centre = jnp.exp(found.logits) @ found.means
    assert np.abs(centre - at).max() < (1e-12 if kept else 0.6)
