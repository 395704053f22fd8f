"""Targets of the literature that need no data: mixtures, wells, funnels, particles, fields.

Definitions are those of the repositories named in each docstring. Exact draws come from the
construction (mixtures, funnels) or from the inverse distribution function of a coordinate (wells).
"""

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from involutive import targets
from involutive.bench.reach import densities
from involutive.targets.target import Modes, Target, Vector

NINE = np.array(list(product((-5.0, 0.0, 5.0), repeat=2)))
NINE_SD = 0.5477  # fab-jax: variance 0.3
FORTY_RANGE, STUDENT_RANGE = 40.0, 10.0
WELLS = 5.0  # half the width of that grid
GRID = 40_001  # points of a tabulated distribution function of one coordinate


def published_uniform(shape: tuple[int, ...], half_width: float) -> np.ndarray:
    """Uniform on [-h, h] from JAX key 0 as JAX 0.4 drew it: without partitionable threefry."""
    with jax.threefry_partitionable(False):
        unit = jr.uniform(jr.key(0, impl="threefry2x32"), shape, jnp.float32, -1.0, 1.0)
    return half_width * np.asarray(unit, float)


def normalised(base: Target, log_z: float) -> Target:
    """The target with its integral divided out, so that log Z is 0."""
    return Target(
        lambda x: base.log_density(x) - log_z,
        base.dim,
        name=base.name,
        sample=base.sample,
        modes=base.modes,
        extent=base.extent,
    )


def gaussian_log_z(dim: int, sd: float = 1.0) -> float:
    """`log ∫ exp(-|x|²/2sd²)`."""
    return 0.5 * dim * float(np.log(2 * np.pi * sd**2))


def gmm_v1() -> Target:
    """Nine equal Gaussians of sd 0.5477 on a grid of spacing 5, normalised (fab-jax)."""
    base = targets.mixture(NINE, sd=NINE_SD, name="gmm_v1")
    return normalised(base, gaussian_log_z(2, NINE_SD))


def gmm40(dim: int) -> Target:
    """40 equal unit Gaussians, means uniform on [-40, 40], normalised (SCLD)."""
    base = targets.mixture(published_uniform((40, dim), FORTY_RANGE), name=f"gmm40({dim})")
    return normalised(base, gaussian_log_z(dim))


def funnel(dim: int) -> Target:
    """Neal's funnel, normalised: `x_0 ~ N(0, 9)`, `x_i ~ N(0, exp(x_0))`."""
    return normalised(targets.funnel(dim), gaussian_log_z(1, 3.0) + gaussian_log_z(dim - 1))


# ── Wells ───────────────────────────────────────────────────────────────────────────────────────


def _heights(log_density: Callable[[np.ndarray], np.ndarray], half_width: float) -> tuple:
    """A grid, the density there over its maximum, and the log of that maximum."""
    grid = np.linspace(-half_width, half_width, GRID)
    values = log_density(grid)
    return grid, np.exp(values - values.max()), float(values.max())


def _inverse(log_density: Callable[[np.ndarray], np.ndarray]) -> Callable[[Array], Array]:
    """The inverse distribution function of one coordinate, by the trapezoidal rule."""
    grid, height, _ = _heights(log_density, WELLS)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (height[1:] + height[:-1]))])
    return lambda u: jnp.interp(u, jnp.asarray(mass / mass[-1]), jnp.asarray(grid))


def _log_mass(log_density: Callable[[np.ndarray], np.ndarray]) -> float:
    """The log integral of one coordinate; the density vanishes at both ends of the grid."""
    grid, height, top = _heights(log_density, WELLS)
    return top + float(np.log(height.sum() * (grid[1] - grid[0])))


def _tilted(x: np.ndarray) -> np.ndarray:
    return -(x**4) + 6 * x**2 + 0.5 * x


def many_well_log_z(dim: int) -> float:
    """`(d/2)(log ∫ exp(-x⁴ + 6x² + x/2) + ½ log 2π)`: 164.696 for d = 32."""
    return dim / 2 * (_log_mass(_tilted) + gaussian_log_z(1))


def many_well(dim: int) -> Target:
    """Pairs of a double well and a normal coordinate: 2^(d/2) modes (fab-jax)."""
    inverse = _inverse(_tilted)

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        key_well, key_normal = jr.split(key)
        wells = inverse(jr.uniform(key_well, (n, dim // 2)))
        return jnp.stack([wells, jr.normal(key_normal, wells.shape)], axis=-1).reshape(n, dim)

    return Target(densities.many_well(dim), dim, name=f"many_well({dim})", sample=sample)


def _even(x: np.ndarray) -> np.ndarray:
    return -((x**2 - 4.0) ** 2)


def mw54_log_z() -> float:
    """`5 log ∫ exp(-(x² - 4)²)`."""
    return 5 * _log_mass(_even)


def mw54() -> Target:
    """Five double wells, `log p = -Σ (x² - 4)²`: 32 equal modes (SCLD's ManyWell2)."""
    inverse = _inverse(_even)
    powers = np.array([1, 2, 4, 8, 16])

    def label(x: Vector) -> Int[Array, ""]:
        return jnp.sum(jnp.where(x > 0, jnp.asarray(powers), 0))

    return Target(
        lambda x: -jnp.sum((x**2 - 4.0) ** 2),
        5,
        name="mw54",
        sample=lambda key, n: inverse(jr.uniform(key, (n, 5))),
        modes=Modes(label, (1 / 32,) * 32),
    )


# ── Mixtures of Student-t products ──────────────────────────────────────────────────────────────


def mos(dim: int = 50, count: int = 10) -> Target:
    """Ten equal products of t₂ with unit scales, locations uniform on [-10, 10] (SCLD)."""
    means = published_uniform((count, dim), STUDENT_RANGE)
    raw = densities.student_products(means)
    log_z = float(np.log(count) + dim * np.log(2 * np.sqrt(2.0)))

    def label(x: Vector) -> Int[Array, ""]:
        gaps = x[None] - jnp.asarray(means, x.dtype)
        return jnp.argmax(jnp.sum(-1.5 * jnp.log1p(0.5 * gaps**2), axis=1))

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        key_mode, key_t = jr.split(key)
        mode = jr.choice(key_mode, count, (n,))
        return jnp.asarray(means)[mode] + jr.t(key_t, 2.0, (n, dim))

    modes = Modes(label, (1 / count,) * count)
    return Target(lambda x: raw(x) - log_z, dim, name=f"mos({dim})", sample=sample, modes=modes)


# ── Particles and fields ────────────────────────────────────────────────────────────────────────


def dw4() -> Target:
    """Four particles in the plane with double-well pair energies (bgflow, DEM)."""
    return Target(densities.double_well_particles, 8, name="dw4")


def lj13() -> Target:
    """13 Lennard-Jones particles, each pair counted twice as DEM does, N(0, 1/13) on the centre."""
    return Target(densities.lennard_jones(pair_weight=2.0), 39, name="lj13")


def phi4(rows: int = 8, columns: int = 8) -> Target:
    """φ⁴ with κ = 0.3 and λ = 0.022 on a periodic lattice: two equal modes, ±φ (SCLD)."""
    return Target(
        densities.phi4(rows, columns),
        rows * columns,
        name=f"phi4({rows}x{columns})",
        modes=Modes(lambda x: (jnp.mean(x) > 0).astype(int), (0.5, 0.5)),
    )
