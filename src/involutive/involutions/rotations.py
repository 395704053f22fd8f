"""Continuous symmetries: one-parameter groups of rotations, x ↦ c + exp(tA)(x - c).

A density keeps its value along such a group if and only if ∇log p(x)·A(x - c) = 0 for every x. The
equation is linear in A and b = -Ac, so the null space of the vectors (∇log p(x) ⊗ x, ∇log p(x))
over enough points x holds every one-parameter group of affine symmetries. Those with imaginary
eigenvalues are rotations, in planes that need not be those of coordinates:

    A = P diag(ω_1 J, …, ω_m J, 0) P⁻¹,   J = [[0, -1], [1, 0]].

With the angle t as the auxiliary variable, (x, t) ↦ (c + exp(tA)(x - c), -t) is an involution that
preserves volume.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Vector = Float[Array, " dim"]

NULL = 1e-9  # relative eigenvalue, of squares, below which an equation is taken to hold. A guess
IMAGINARY = 1e-3  # relative real part of eigenvalues of a rotation, at most. A guess
CONDITION = 1e3  # of P, at most. A guess


class Rotation(NamedTuple):
    """A one-parameter group of rotations.

    Attributes:
        centre: c.
        planes: P; its first 2m columns span the planes of rotation, in pairs.
        inverse: P⁻¹.
        frequencies: ω_1 … ω_m, the smallest of size one.
    """

    centre: np.ndarray
    planes: np.ndarray
    inverse: np.ndarray
    frequencies: np.ndarray


class Rotations(eqx.Module):
    """Several one-parameter groups of rotations, made one after the other.

    Args:
        dim: the number of coordinates.
        groups: the groups; see `rotations_of` for how they are found.
    """

    centres: Float[Array, "groups dim"]
    planes: Float[Array, "groups dim dim"]
    inverses: Float[Array, "groups dim dim"]
    frequencies: Float[Array, "groups half"]
    dim: int = eqx.field(static=True)

    def __init__(self, dim: int, groups: Sequence[Rotation] = ()):
        half = dim // 2
        padded = [np.pad(np.asarray(g.frequencies), (0, half - len(g.frequencies))) for g in groups]
        shapes = ((0, dim), (0, dim, dim), (0, dim, dim), (0, half))
        columns = (
            [np.asarray(g.centre) for g in groups], [np.asarray(g.planes) for g in groups],
            [np.asarray(g.inverse) for g in groups], padded,
        )  # fmt: skip
        self.centres, self.planes, self.inverses, self.frequencies = (
            jnp.asarray(np.stack(rows) if rows else np.zeros(shape), float)
            for rows, shape in zip(columns, shapes, strict=True)
        )
        self.dim = dim

    def __len__(self) -> int:
        return self.centres.shape[0]

    def in_words(self) -> list[str]:
        """One line per set of coordinates that rotations move."""
        counts = Counter(_moved(group) for group in self.groups())
        lines = []
        for moved, count in counts.items():
            listed = ", ".join(map(str, moved[:12])) + (", …" if len(moved) > 12 else "")
            which = f"coordinates {listed}" if len(moved) < self.dim or self.dim < 4 else "space"
            lines.append(f"rotation of {which}" + (f", {count} generators" if count > 1 else ""))
        return lines

    def groups(self) -> list[Rotation]:
        """The groups as arrays on the host."""
        columns = (self.centres, self.planes, self.inverses, self.frequencies)
        return [Rotation(*row) for row in zip(*map(np.asarray, columns), strict=True)]

    def turned(self, x: Vector, angles: Float[Array, " groups"], backward: bool = False) -> Vector:
        """Rotate x by an angle of every group, the first group first, or the last one first."""
        order = range(len(self))
        for i in reversed(order) if backward else order:
            x = self._turned(x, i, angles[i])
        return x

    def _turned(self, x: Vector, i: int, angle: Float[Array, ""]) -> Vector:
        half = self.frequencies.shape[1]
        y = self.inverses[i] @ (x - self.centres[i])
        first, second = y[0 : 2 * half : 2], y[1 : 2 * half : 2]
        cos, sin = (f(angle * self.frequencies[i]) for f in (jnp.cos, jnp.sin))
        pairs = jnp.stack([cos * first - sin * second, sin * first + cos * second], axis=1)
        y = jnp.concatenate([pairs.reshape(-1), y[2 * half :]])
        return self.centres[i] + self.planes[i] @ y


def rotations_of(points: np.ndarray, gradients: np.ndarray) -> list[Rotation]:
    """The one-parameter groups of rotations that leave a density alone, by its gradients.

    Args:
        points: `(n, dim)` points, more than `dim² + dim` of them.
        gradients: `(n, dim)`, the gradient of the log density at each.
    """
    dim = points.shape[1]
    middle, scale = points.mean(axis=0), points.std(axis=0)
    white, slopes = (points - middle) / scale, gradients * scale
    rows = np.concatenate(
        [(slopes[:, :, None] * white[:, None, :]).reshape(len(points), -1), slopes], axis=1
    )
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    usable = np.isfinite(sizes[:, 0]) & (sizes[:, 0] > 0)
    if usable.sum() <= rows.shape[1]:
        return []
    rows = rows[usable] / sizes[usable]
    values, vectors = np.linalg.eigh(rows.T @ rows)
    null = vectors[:, values < NULL * values[-1]].T
    found = (_rotation(v[: dim * dim].reshape(dim, dim), v[dim * dim :]) for v in null)
    return [_coloured(group, middle, scale) for group in found if group is not None]


def _moved(group: Rotation) -> tuple[int, ...]:
    """The coordinates that a group of rotations changes."""
    turning = 2 * int(np.count_nonzero(group.frequencies))
    sizes = np.abs(group.planes[:, :turning] @ group.inverse[:turning]).max(axis=1)
    return tuple(np.flatnonzero(sizes > IMAGINARY * sizes.max()).tolist())


def _rotation(a: np.ndarray, b: np.ndarray) -> Rotation | None:
    """x ↦ Ax + b as a group of rotations about a centre, or None if it is none."""
    values, vectors = np.linalg.eig(a)
    growth, rates = np.real(values), np.imag(values)
    largest = np.abs(values).max()
    turning = np.flatnonzero(rates > IMAGINARY * largest)
    if not len(turning) or np.abs(growth).max() > IMAGINARY * largest:
        return None
    planes = np.stack([np.real(vectors)[:, turning], -np.imag(vectors)[:, turning]], axis=2)
    planes = planes.reshape(len(a), -1)
    still = np.linalg.svd(a)[2][2 * len(turning) :].T  # the null space of A
    whole = np.concatenate([planes, still], axis=1)
    if whole.shape[1] != len(a) or np.linalg.cond(whole) > CONDITION:
        return None
    centre = -np.linalg.pinv(a, rcond=IMAGINARY) @ b
    if not np.allclose(a @ centre, -b, atol=IMAGINARY * (1 + np.abs(b).max())):
        return None
    frequencies = rates[turning]
    return Rotation(centre, whole, np.linalg.inv(whole), frequencies / frequencies.min())


def _coloured(group: Rotation, middle: np.ndarray, scale: np.ndarray) -> Rotation:
    """The group in the coordinates that were centred and scaled before."""
    return Rotation(
        middle + scale * group.centre, scale[:, None] * group.planes, group.inverse / scale,
        group.frequencies,
    )  # fmt: skip
