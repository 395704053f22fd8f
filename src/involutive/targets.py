"""Targets: an unnormalised log density on R^dim, with exact draws where they are known.

A target is what every sampler here needs and nothing more: `log_density`, a function of one flat
vector. Positions of another shape (a dict of arrays) are flattened inside and restored outside.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import erf, logsumexp
from jaxtyping import Array, Float, Int, Key

from involutive.errors import InputError, check, check_count
from involutive.one_by_one import one_by_one

Vector = Float[Array, " dim"]
LogDensity = Callable[[Any], Any]
Sampler = Callable[[Key[Array, ""], int], Float[Array, "n dim"]]


class Modes(NamedTuple):
    """A partition of space into cells: `label(x)` names the cell, `weights` its exact mass."""

    label: Callable[[Vector], Int[Array, ""]]
    weights: tuple[float, ...]


class Target(eqx.Module):
    """An unnormalised log density on R^dim.

    Args:
        log_density: maps one vector of shape `(dim,)` to a scalar (or, with `like`, a pytree
            shaped as `like`). Constants may be dropped; `-inf` means outside the support.
        dim: the number of coordinates.
        like: an example position, for densities of a pytree; `dim` is then counted from it.
        name: shown in reports.
        sample: `(key, n) -> (n, dim)` exact draws, where known.
        modes: a partition with exact masses, where known.
        constrain: maps a flat vector to a dict of named arrays, as results are reported.
        dims, coords: ArviZ's names for the axes of the constrained variables.
        extent: a length that covers the bulk, for pictures.
    """

    log_density: LogDensity
    dim: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    sample: Sampler | None = eqx.field(static=True)
    modes: Modes | None = eqx.field(static=True)
    constrain: Callable[[Vector], dict[str, Array]] = eqx.field(static=True)
    extent: float | None = eqx.field(static=True)
    labels: "Labels" = eqx.field(static=True)

    def __init__(
        self,
        log_density: LogDensity,
        dim: int | None = None,
        *,
        like: Any = None,
        name: str | None = None,
        sample: Sampler | None = None,
        modes: Modes | None = None,
        constrain: Callable[[Vector], dict[str, Array]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Any] | None = None,
        extent: float | None = None,
    ):
        check(
            callable(log_density),
            f"log_density must be a function of one vector, got {type(log_density).__name__}",
        )
        if like is None:
            check(dim is not None, "dim must be given (or like=, an example position), got neither")
            self.dim = check_count("dim", dim)
            self.log_density = log_density
            self.constrain = constrain or _as_x
        else:
            flat, restore = ravel_pytree(jax.tree.map(_as_float, like))
            check(flat.size > 0, "like must hold at least one number, got an empty position")
            check(
                dim in (None, flat.size),
                f"dim must match like, which holds {flat.size} numbers, got dim={dim}; drop dim",
            )
            self.dim = int(flat.size)
            self.log_density = _OnPytree(log_density, restore)
            self.constrain = constrain or (lambda x: named_leaves(restore(x)))
        self.name = name or getattr(log_density, "__name__", "target").strip("<>")
        self.sample, self.modes, self.extent = sample, modes, extent
        self.labels = Labels(dims, coords) if dims or coords else UNNAMED
        _check_density(self.log_density, self.dim)
        self.log_density = one_by_one(self.log_density, self.dim)

    def flatten(self, position: Any) -> Vector:
        """Return a position, flat or shaped as `like`, as one float vector."""
        flat = ravel_pytree(jax.tree.map(_as_float, position))[0]
        check(
            flat.shape == (self.dim,),
            f"a position must hold {self.dim} numbers (dim of {self.name}), got {flat.size}",
        )
        return flat


class _OnPytree(eqx.Module):
    """A density of a pytree as a density of its flat vector."""

    log_density: LogDensity
    restore: Callable[[Vector], Any] = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return self.log_density(self.restore(x))


class Labels:
    """Names of axes and their values for ArviZ; hashed by identity, so that it may be static."""

    def __init__(self, dims: Mapping[str, Sequence[str]] | None, coords: Mapping[str, Any] | None):
        self.dims, self.coords = dict(dims or {}), dict(coords or {})


UNNAMED = Labels(None, None)  # one, so that targets which differ in arrays only compile once


def _as_float(leaf: Any) -> Array:
    return jnp.asarray(leaf, dtype=float)


def _as_x(x: Vector) -> dict[str, Array]:
    return {"x": x}


def named_leaves(position: Any) -> dict[str, Array]:
    """Return a pytree's leaves by name: `{"a": {"b": 1.0}}` gives `{"a.b": 1.0}`."""
    leaves = jax.tree_util.tree_leaves_with_path(position)

    def part(entry: Any) -> str:
        return str(getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry))))

    return {".".join(map(part, path)) or "x": leaf for path, leaf in leaves}


def _check_density(log_density: LogDensity, dim: int) -> None:
    """Trace the density once, without running it, and say in one line what does not fit."""
    point = jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
    try:
        out = jax.eval_shape(log_density, point)
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"log_density must map one vector of shape ({dim},) to a scalar with JAX operations, "
            f"but it raised {type(error).__name__}: {line}"
        ) from error
    leaves = jax.tree.leaves(out)
    remedy = "return one real number, for example with jnp.sum"
    check(
        len(leaves) == 1 and hasattr(out, "shape"),
        f"log_density must return one scalar, got {type(out).__name__} of {len(leaves)} arrays; "
        f"{remedy}",
    )
    check(out.shape == (), f"log_density must return a scalar, got shape {out.shape}; {remedy}")
    check(
        jnp.issubdtype(out.dtype, jnp.floating),
        f"log_density must return a real float, got dtype {out.dtype}; {remedy}",
    )


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


def mixture(means: Any, weights: Any = None, sd: float = 1.0, name: str = "mixture") -> Target:
    """`p(x) = Σ_k w_k N(x; μ_k, sd² I)`, with the nearest centre as the mode of x."""
    means = np.atleast_2d(np.asarray(means, dtype=float))
    count, dim = means.shape
    weights = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float)
    check(
        weights.shape == (count,) and (weights > 0).all(),
        f"weights must be {count} positive numbers, one a mean, got {weights}",
    )
    weights = weights / weights.sum()

    def log_density(x: Vector) -> Float[Array, ""]:
        squares = jnp.sum((x[None, :] - jnp.asarray(means, x.dtype)) ** 2, axis=1)
        return logsumexp(jnp.log(jnp.asarray(weights, x.dtype)) - 0.5 * squares / sd**2)

    def label(x: Vector) -> Int[Array, ""]:
        return jnp.argmin(jnp.sum((x[None, :] - jnp.asarray(means, x.dtype)) ** 2, axis=1))

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        key_mode, key_noise = jr.split(key)
        mode = jr.choice(key_mode, count, (n,), p=jnp.asarray(weights))
        return jnp.asarray(means)[mode] + sd * jr.normal(key_noise, (n, dim))

    modes, extent = Modes(label, tuple(weights.tolist())), float(np.abs(means).max() + 4 * sd)
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


def _rings(centres: Sequence[float], width: float, name: str) -> Target:
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

        def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
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
    return _rings([2.0], 0.4, "ring")


def ring5() -> Target:
    """Five rings in the plane: `log p(x) = -min_{i=1..5} ((|x| - i)/0.2)²`."""
    return _rings([1.0, 2.0, 3.0, 4.0, 5.0], 0.2, "ring5")


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
