"""The universality theorem's construction: formula, volume, networks, acceptance."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive import universality as u

IDS = [t.name for t in u.TRANSITIONS]
each = pytest.mark.parametrize("transition", u.TRANSITIONS, ids=IDS)


def points(transition, key, count=2000):
    """Uniform φ in a box inside Ω and normal π."""
    key_phi, key_pi = jr.split(key)
    n = transition.dim
    phi = transition.radius * jr.uniform(key_phi, (count, n), minval=-1.0) / n**0.5
    return phi, jr.normal(key_pi, (count, n + 6))


def moved(f, phi, pi):
    return jax.jit(jax.vmap(lambda x, v: f(jnp.concatenate([x, v]))[0]))(phi, pi)


@each
@pytest.mark.parametrize("epsilon", [0.3, 0.05])
def test_lemma_holds_on_the_event(transition, epsilon, getkey):
    phi, pi = points(transition, getkey())
    inside = np.asarray(jax.jit(jax.vmap(lambda v: u.event(v, epsilon)))(pi))
    found = moved(u.exact_involution(transition, epsilon), phi, pi)[:, : transition.dim]
    wanted = jax.jit(jax.vmap(lambda x, v: u.formula(transition, epsilon, x, v)))(phi, pi)
    assert inside.sum() > 1000
    assert np.abs(found - wanted)[inside].max() < 1e-9


def test_formula_fails_off_the_event():
    # flags misread: π₃ - π₂ far below -1/2ε switches R off, so φ does not move by T - φ
    transition, epsilon = u.BIMODAL, 0.3
    pi = jnp.zeros(7).at[0].set(2.0).at[2].set(-5.0)
    phi = jnp.array([0.2])
    z, _ = u.exact_involution(transition, epsilon)(jnp.concatenate([phi, pi]))
    assert not bool(u.event(pi, epsilon))
    assert abs(float(z[0] - u.formula(transition, epsilon, phi, pi)[0])) > 0.5


@each
def test_transitions_stay_in_their_ball(transition, getkey):
    phi, pi = points(transition, getkey())
    out = jax.jit(jax.vmap(transition.apply))(3 * phi, 3 * pi[:, 0])
    assert float(jnp.linalg.norm(out, axis=1).max()) <= transition.radius + 1e-12


@each
def test_networks_are_involutive_and_keep_volume(transition, getkey):
    f = u.network_involution(transition, 0.1, 48, 3, points=1024)
    phi, pi = points(transition, getkey(), 16)
    z = jnp.concatenate([phi, pi], axis=1)
    back = jax.jit(jax.vmap(lambda z: f(f(z)[0])[0]))(z)
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda z: f(z)[0])))(z)
    assert f.volume_preserving
    assert np.abs(back - z).max() < 1e-9
    assert np.abs(np.linalg.slogdet(np.asarray(slopes))[1]).max() < 1e-9


@pytest.mark.deep
def test_wider_networks_come_closer(getkey):
    transition, epsilon = u.DEPENDENT, 0.02
    phi, pi = points(transition, getkey())
    exact = moved(u.exact_involution(transition, epsilon), phi, pi)[:, :1]
    errors = [
        float(jnp.mean(jnp.abs(moved(f, phi, pi)[:, :1] - exact)))
        for f in (u.network_involution(transition, epsilon, m, 0, points=2048) for m in (8, 256))
    ]
    assert errors[1] < 0.02 < 0.1 < errors[0]


def test_the_networks_error_is_zero_for_exact_shifts_and_falls_with_m(getkey):
    transition, epsilon = u.BIMODAL, 0.1
    asked = u.visited(transition, jnp.asarray(epsilon), *points(transition, getkey(), 500))

    def error(f):
        return float(u.approximation_error(transition, f, epsilon, *asked))

    assert error(u.exact_involution(transition, epsilon)) == 0
    narrow, wide = (u.network_involution(transition, epsilon, m, 0, 2048) for m in (8, 256))
    assert 0 < error(wide) < 0.5 * error(narrow)


def test_points_fill_the_ball():
    length = np.linalg.norm(u.in_ball(np.random.default_rng(0), 4000, 3, 5.0), axis=1)
    assert length.max() < 5
    np.testing.assert_allclose(np.median(length), 5 * 0.5 ** (1 / 3), rtol=0.02)


@each
def test_auxiliary_ratio_has_its_closed_form(transition, getkey):
    epsilon = 0.1
    phi, pi = points(transition, getkey())
    n = transition.dim
    inside = np.asarray(jax.jit(jax.vmap(lambda v: u.event(v, epsilon)))(pi))
    after = moved(u.exact_involution(transition, epsilon), phi, pi)[:, n:]
    ratio = 0.5 * jnp.sum(pi**2, axis=1) - 0.5 * jnp.sum(after**2, axis=1)
    closed = jax.jit(jax.vmap(lambda x, v: u.log_auxiliary_ratio(transition, epsilon, x, v)))(
        phi, pi
    )
    assert np.abs(ratio - closed)[inside].max() < 1e-9 * np.abs(ratio).max()
    # correction 8: the flags alone cost 2/ε², so next to nothing is accepted
    assert float(jnp.median(ratio)) < -0.9 * 2 / epsilon**2


def test_acceptance_vanishes_though_the_proposal_is_the_target(getkey):
    target = u.law_of_bimodal()
    key_state, key_pi = jr.split(getkey())
    draw = jax.jit(jax.vmap(lambda s: u.BIMODAL.apply(jnp.zeros(1), s)))
    states = draw(jr.normal(key_state, (2000,)))
    pi = jr.normal(key_pi, (2000, 7))
    rates = []
    for epsilon in (1.0, 0.2):
        kernel = inv.Kernel(target, u.exact_involution(u.BIMODAL, epsilon), inv.standard_normal(7))
        propose = jax.jit(jax.vmap(lambda x, v, k=kernel: k.propose(k.init(x), v).log_ratio))
        ratio = propose(states, pi)
        rates.append(float(jnp.mean(jnp.exp(jnp.minimum(ratio, 0.0)))))
    assert rates[0] > 0.05
    assert rates[1] < 1e-4


def test_law_of_bimodal_is_the_law_of_the_transition():
    # the density of T(u) integrates to √(2π), the constant that was dropped
    target = u.law_of_bimodal()
    x = jnp.linspace(-1.2999, 1.2999, 200_001)
    heights = jnp.exp(jax.jit(jax.vmap(lambda x: target.log_density(x[None])))(x))
    total = float(jnp.sum(heights) * (x[1] - x[0]))
    assert abs(total / np.sqrt(2 * np.pi) - 1) < 1e-3


def test_bad_sizes_are_refused_in_words():
    with pytest.raises(inv.InputError, match="epsilon must be positive, got -1"):
        u.exact_involution(u.BIMODAL, -1.0)
    with pytest.raises(inv.InputError, match="width must be at least 1, got 0"):
        u.network_involution(u.BIMODAL, 0.1, 0, 0)
