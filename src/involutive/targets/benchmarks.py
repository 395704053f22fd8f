"""Densities with known answers: exact draws, exact mode weights."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import erf, logsumexp
from jaxtyping import Array, Float, Int, Key

from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike
from involutive.targets.target import Modes, Target, Vector

# ── Gaussians and mixtures of them ──────────────────────────────────────────────────────────────


def gaussian(dim: int = 2) -> Target:
    """The standard normal: `log p(x) = -|x|²/2`."""
    return Target(
        lambda x: -0.5 * jnp.sum(x**2),
        dim,
        name=f"gaussian({dim})",
        sample=lambda key, n: jr.normal(key, (n, dim)),
        extent=4.0,
    )


def correlated_gaussian(dim: int = 50, condition: float = 1e4, seed: int = 0) -> Target:
    """`N(0, Q Λ Qᵀ)`, Q a random rotation, Λ geometric from 1 to `condition`."""
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))
    scales = np.sqrt(np.geomspace(1.0, condition, dim))
    whiten, colour = (rotation / scales).T, (rotation * scales).T
    return Target(
        lambda x: -0.5 * jnp.sum((jnp.asarray(whiten, x.dtype) @ x) ** 2),
        dim,
        name=f"correlated_gaussian({dim})",
        sample=lambda key, n: jr.normal(key, (n, dim)) @ colour,
        extent=4.0 * float(scales[-1]),
    )


def mixture(
    means: ArrayLike, weights: ArrayLike | None = None, sd: float = 1.0, name: str = "mixture"
) -> Target:
    """`p(x) = Σ_k w_k N(x; μ_k, sd² I)`, with the nearest centre as the mode of x."""
    centres = np.atleast_2d(np.asarray(means, dtype=float))
    count, dim = centres.shape
    shares = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float)
    check(
        shares.shape == (count,) and (shares > 0).all(),
        f"weights must be {count} positive numbers, one per mean, got {shares}",
    )
    shares = shares / shares.sum()

    def log_density(x: Vector) -> Float[Array, ""]:
        squares = jnp.sum((x[None, :] - jnp.asarray(centres, x.dtype)) ** 2, axis=1)
        return logsumexp(jnp.log(jnp.asarray(shares, x.dtype)) - 0.5 * squares / sd**2)

    def label(x: Vector) -> Int[Array, ""]:
        return jnp.argmin(jnp.sum((x[None, :] - jnp.asarray(centres, x.dtype)) ** 2, axis=1))

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        key_mode, key_noise = jr.split(key)
        mode = jr.choice(key_mode, count, (n,), p=jnp.asarray(shares))
        return jnp.asarray(centres)[mode] + sd * jr.normal(key_noise, (n, dim))

    modes, extent = Modes(label, tuple(shares.tolist())), float(np.abs(centres).max() + 4 * sd)
    return Target(log_density, dim, name=name, sample=sample, modes=modes, extent=extent)


def mog2_1d() -> Target:
    """Two equal Gaussians at ±0.5 with sd 0.05, on the line (the paper's Figure 1)."""
    return mixture([[-0.5], [0.5]], sd=0.05, name="mog2_1d")


def mog2() -> Target:
    """Two equal Gaussians at (±5, 0) with sd 0.5."""
    return mixture([[-5.0, 0.0], [5.0, 0.0]], sd=0.5, name="mog2")


def mog6() -> Target:
    """Six equal Gaussians with sd 0.5, evenly spaced on the circle of radius 5."""
    angle = np.arange(6) * np.pi / 3
    return mixture(5 * np.stack([np.cos(angle), np.sin(angle)], axis=1), sd=0.5, name="mog6")


def two_modes(
    dim: int = 10, separation: float = 10.0, weights: Sequence[float] = (1 / 3, 2 / 3)
) -> Target:
    """Two unit Gaussians, `separation` apart along the diagonal, with the given weights."""
    half = np.full(dim, separation / 2 / np.sqrt(dim))
    return mixture([-half, half], weights, name=f"two_modes({dim})")


def eight_modes(dim: int = 20, seed: int = 0) -> Target:
    """Eight equal unit Gaussians in `dim` dimensions, their means drawn from N(0, 25 I)."""
    means = 5 * np.random.default_rng(seed).normal(size=(8, dim))
    return mixture(means, name=f"eight_modes({dim})")


# ── Rings ───────────────────────────────────────────────────────────────────────────────────────


def _ring_integral(r: Array, centre: Array, width: float) -> Array:
    """`∫ t exp(-((t - centre)/width)²) dt` up to r, apart from a constant."""
    u = (r - centre) / width
    return 0.5 * width * (jnp.sqrt(jnp.pi) * centre * erf(u) - width * jnp.exp(-(u**2)))


def concentric_rings(centres: Sequence[float], width: float, name: str) -> Target:
    """`log p(x) = -min_i ((|x| - c_i)/width)²` in the plane."""
    rings = np.asarray(centres, dtype=float)
    edges = np.concatenate([[0.0], (rings[1:] + rings[:-1]) / 2, [rings[-1] + 12 * width]])
    low, high = edges[:-1], edges[1:]
    with jax.ensure_compile_time_eval():
        ends = [_ring_integral(jnp.asarray(at), jnp.asarray(rings), width) for at in (low, high)]
        mass = np.asarray(ends[1] - ends[0])
    mass = mass / mass.sum()

    def log_density(x: Vector) -> Float[Array, ""]:
        # the square root has no gradient at 0; the density there is negligible
        r = jnp.sqrt(jnp.sum(x**2) + jnp.finfo(x.dtype).tiny)
        return -jnp.min(((r - jnp.asarray(rings, x.dtype)) / width) ** 2)

    def label(x: Vector) -> Int[Array, ""]:
        return jnp.argmin(jnp.abs(jnp.linalg.norm(x) - jnp.asarray(rings, x.dtype)))

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        """Choose a ring by its mass, invert its radial distribution function by bisection."""
        key_ring, key_u, key_angle = jr.split(key, 3)
        ring = jr.choice(key_ring, len(rings), (n,), p=jnp.asarray(mass))
        centre, a, b = jnp.asarray(rings)[ring], jnp.asarray(low)[ring], jnp.asarray(high)[ring]
        at_a, at_b = _ring_integral(a, centre, width), _ring_integral(b, centre, width)
        goal = at_a + jr.uniform(key_u, (n,)) * (at_b - at_a)

        def halve(_: object, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            below, above = bounds
            middle = 0.5 * (below + above)
            short = _ring_integral(middle, centre, width) < goal
            return jnp.where(short, middle, below), jnp.where(short, above, middle)

        radius = jax.lax.fori_loop(0, 60, halve, (a, b))[0]
        angle = jr.uniform(key_angle, (n,), maxval=2 * jnp.pi)
        return radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)

    modes = Modes(label, tuple(mass.tolist())) if len(rings) > 1 else None
    extent = float(rings[-1] + 4 * width)
    return Target(log_density, 2, name=name, sample=sample, modes=modes, extent=extent)


def ring() -> Target:
    """One ring in the plane: `log p(x) = -((|x| - 2)/0.4)²`."""
    return concentric_rings([2.0], 0.4, "ring")


def ring5() -> Target:
    """Five rings in the plane: `log p(x) = -min_{i=1..5} ((|x| - i)/0.2)²`."""
    return concentric_rings([1.0, 2.0, 3.0, 4.0, 5.0], 0.2, "ring5")


# ── Funnel ──────────────────────────────────────────────────────────────────────────────────────


def funnel(dim: int = 10) -> Target:
    """Neal's funnel: `x_0 ~ N(0, 3²)`, `x_i | x_0 ~ N(0, exp(x_0))` for i = 1 .. dim-1."""
    check(check_count("dim", dim) >= 2, f"dim of a funnel must be at least 2, got {dim}")

    def log_density(x: Vector) -> Float[Array, ""]:
        rest = jnp.sum(x[1:] ** 2) * jnp.exp(-x[0])
        return -0.5 * (x[0] ** 2 / 9 + rest + (dim - 1) * x[0])

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        z = jr.normal(key, (n, dim))
        neck = 3 * z[:, :1]
        return jnp.concatenate([neck, jnp.exp(0.5 * neck) * z[:, 1:]], axis=1)

    return Target(log_density, dim, name=f"funnel({dim})", sample=sample, extent=10.0)
