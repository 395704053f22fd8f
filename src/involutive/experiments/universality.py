"""The universality theorem in practice: any transition as the proposal of an involutive network.

Five questions to the proof's construction, for three transitions T:

    does the exact involution give `T(φ, π₁) + ε π_(4..n+3)` on the event A, with determinant 1?
    how likely is A?
    does the law of the network's proposal reach that of T[φ] as its width m grows and ε_m falls?
    how far are the networks from R and S, where they are asked and over the proof's Ω⁺⁺?
    and what would Metropolis-Hastings accept of it?

Distances are energy distances from draws, averaged over independent sets with their standard
error; two independent sets of exact draws give the floor that no distance can be seen below.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive.auxiliary import standard_normal
from involutive.experiments.universality_page import claims, draw, table
from involutive.involutions.blocks import Conjugate
from involutive.kernel.kernel import Kernel
from involutive.training.mgan.distance import energy_distance
from involutive.universality import (
    BIMODAL,
    TRANSITIONS,
    Transition,
    approximation_error,
    event,
    exact_involution,
    formula,
    in_ball,
    law_of_bimodal,
    log_auxiliary_ratio,
    network_involution,
    visited,
)

__all__ = ["Config", "claims", "draw", "run", "table"]

EXACT_DRAWS = 20_000  # draws of (φ, π) behind P(A), the lemma's error and acceptance


@dataclass(frozen=True)
class Config:
    """Sizes: ε's for A and for acceptance, widths m, starts φ as shares of Ω's radius."""

    seed: int = 0
    epsilons: tuple[float, ...] = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09)
    widths: tuple[int, ...] = (8, 32, 128, 512, 1024)
    starts: tuple[float, ...] = (-0.8, 0.1, 0.6)
    draws: int = 1500
    repeats: int = 8
    points: int = 8192

    @staticmethod
    def quick() -> "Config":
        """The same questions with fewer draws and narrower networks."""
        small = Config(widths=(8, 64, 384), starts=(-0.8, 0.6), draws=1000, repeats=6, points=4096)
        return replace(small, epsilons=(1.0, 0.5, 0.25, 0.125))

    def epsilon(self, width: int) -> float:
        """ε_m, which falls as the network widens."""
        return 1.0 / width


def run(config: Config) -> dict[str, Any]:
    """Return figures for every transition; in float64, which the exact formula deserves."""
    with jax.enable_x64(True):
        epsilons = jnp.asarray(config.epsilons)
        parts = [_study(t, config, (config.seed, i)) for i, t in enumerate(TRANSITIONS)]
        rng = np.random.default_rng((config.seed, len(TRANSITIONS)))
        u, pi = rng.normal(size=EXACT_DRAWS), rng.normal(size=(EXACT_DRAWS, 7))
        rate, median = _acceptance(epsilons, jnp.asarray(u), jnp.asarray(pi))
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]} | {
        "names": np.array([t.name for t in TRANSITIONS]),
        "epsilons": np.array(config.epsilons),
        "widths": np.array(config.widths),
        "network_epsilons": np.array([config.epsilon(m) for m in config.widths]),
        "acceptance": np.asarray(rate),
        "median_log_ratio": np.asarray(median),
    }


def _study(transition: Transition, config: Config, seed: tuple[int, ...]) -> dict[str, Any]:
    """Everything on one transition: the exact involution, the floor, the networks."""
    rng = np.random.default_rng(seed)
    phi = transition.radius * rng.uniform(-1, 1, (EXACT_DRAWS, transition.dim))
    phi, pi = phi / transition.dim**0.5, rng.normal(size=(EXACT_DRAWS, transition.dim + 6))
    exact = _exactness(transition, jnp.asarray(config.epsilons), jnp.asarray(phi), jnp.asarray(pi))
    laws = _laws(exact_involution(transition, 0.125), start(transition, 0.5), pi)
    rows = []
    for m in config.widths:
        epsilon = jnp.asarray(config.epsilon(m))
        f = network_involution(transition, epsilon, m, config.seed, config.points)
        rows.append(_compare_laws(transition, f, config, rng))
        rows[-1]["network_laws"] = _laws(f, start(transition, 0.5), pi)
        rows[-1] |= _errors(transition, f, epsilon, jnp.asarray(phi), jnp.asarray(pi), rng)
    networks = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    # any width's exact draws would do for the floor and for the picture
    floor, true = networks.pop("floor")[0], networks.pop("true")[0]
    proposed = networks.pop("proposed")
    histogram = np.stack([true, proposed[0], proposed[-1]])
    exact = {name: np.asarray(value) for name, value in exact.items()}
    return exact | networks | {"floor": floor, "histogram": histogram, "exact_laws": laws}


def start(transition: Transition, share: float) -> Array:
    """The point of Ω at this share of its radius along the diagonal."""
    return jnp.full(transition.dim, share * transition.radius / transition.dim**0.5)


@eqx.filter_jit
def _exactness(transition: Transition, epsilons: Array, phi: Array, pi: Array) -> dict[str, Array]:
    """The mass of A with its union bound, and the errors of two formulas on A, for every ε."""
    n = transition.dim

    def at(epsilon: Array) -> dict[str, Array]:
        f = exact_involution(transition, epsilon)

        def one(phi: Array, pi: Array) -> tuple[Array, Array, Array]:
            moved, _ = f(jnp.concatenate([phi, pi]))
            error = jnp.max(jnp.abs(moved[:n] - formula(transition, epsilon, phi, pi)))
            ratio = 0.5 * jnp.sum(pi**2) - 0.5 * jnp.sum(moved[n:] ** 2)
            closed = log_auxiliary_ratio(transition, epsilon, phi, pi)
            return event(pi, epsilon), error, jnp.abs(ratio - closed) / (1 + jnp.abs(ratio))

        inside, error, off = jax.vmap(one)(phi, pi)
        misread = 2 * jax.scipy.stats.norm.cdf(-0.5 / epsilon / 2**0.5)
        far = jax.scipy.stats.chi2.sf(1 / epsilon**2, n + 6)
        return {
            "mass": jnp.mean(inside),
            "bound": jnp.maximum(0.0, 1 - misread - far),
            "lemma_error": jnp.max(error * inside),
            "ratio_error": jnp.max(off * inside),
        }

    return jax.lax.map(at, epsilons)


def _compare_laws(
    transition: Transition, f: Conjugate, config: Config, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Energy distances of f's proposals, and of exact draws, from exact draws of T[φ]."""
    phi = jnp.stack([start(transition, share) for share in config.starts])
    shape = len(config.starts), config.repeats
    u = jnp.asarray(rng.normal(size=(*shape, 2, config.draws)))
    pi = jnp.asarray(rng.normal(size=(*shape, config.draws, transition.dim + 6)))
    distance, floor, true, proposed = map(np.asarray, _compared(transition, f, phi, u, pi))
    last = {"true": true[-1].ravel(), "proposed": proposed[-1].ravel()}
    return {"distance": distance, "floor": floor} | last


@eqx.filter_jit
def _compared(
    transition: Transition, f: Conjugate, phi: Array, u: Array, pi: Array
) -> tuple[Array, Array, Array, Array]:
    def one(phi: Array, u: Array, pi: Array) -> tuple[Array, Array, Array, Array]:
        first, second = jax.vmap(jax.vmap(lambda u: transition.apply(phi, u)))(u)
        proposed = jax.vmap(lambda pi: f(jnp.concatenate([phi, pi]))[0][: phi.size])(pi)
        even = jnp.ones(pi.shape[0])
        distance = energy_distance(proposed, even, first)
        return distance, energy_distance(second, even, first), first[:, 0], proposed[:, 0]

    def at(inputs: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        return jax.lax.map(lambda draws: one(inputs[0], *draws), inputs[1:])

    return jax.lax.map(at, (phi, u, pi))


def _errors(
    transition: Transition,
    f: Conjugate,
    epsilon: Array,
    phi: Array,
    pi: Array,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """δ_m at the points that proposals ask for, and over the proof's Ω⁺⁺.

    A maximum over draws is at most the true one.
    """
    half, radius = transition.dim + 3, 14 * transition.radius + 21
    ball = jnp.asarray(in_ball(rng, EXACT_DRAWS, half, radius))
    asked = visited(transition, epsilon, phi, pi)
    return {
        "error_visited": np.asarray(approximation_error(transition, f, epsilon, *asked)),
        "error_ball": np.asarray(approximation_error(transition, f, epsilon, ball, ball)),
    }


def _laws(f: Conjugate, phi: Array, pi: np.ndarray) -> np.ndarray:
    """Largest `|f(f(z)) - z|` and largest `|log|det Df(z)||` by autodiff, over a few π."""
    z = jnp.concatenate([jnp.broadcast_to(phi[None, :], (32, phi.size)), pi[:32]], axis=1)
    back = eqx.filter_jit(jax.vmap(lambda z: f(f(z)[0])[0]))(z)
    slopes = np.asarray(eqx.filter_jit(jax.vmap(jax.jacfwd(lambda z: f(z)[0])))(z))
    return np.array([np.abs(back - z).max(), np.abs(np.linalg.slogdet(slopes)[1]).max()])


@eqx.filter_jit
def _acceptance(epsilons: Array, u: Array, pi: Array) -> tuple[Array, Array]:
    """Mean acceptance and median log ratio in stationarity of the exact involution, p = T[φ]."""
    target = law_of_bimodal()
    states = jax.vmap(lambda u: BIMODAL.apply(jnp.zeros(1), u))(u)

    def at(epsilon: Array) -> tuple[Array, Array]:
        kernel = Kernel(target, exact_involution(BIMODAL, epsilon), standard_normal(7))
        ratio = jax.vmap(lambda x, v: kernel.propose(kernel.init(x), v).log_ratio)(states, pi)
        return jnp.mean(jnp.exp(jnp.minimum(ratio, 0.0))), jnp.median(ratio)

    return jax.lax.map(at, epsilons)
