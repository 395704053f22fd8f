"""Symmetries of a density: exchanges of groups of coordinates, sign flips, and rotations.

If p(Sx) = p(x) for a map S with S∘S = id and |det S| = 1, then S is an involution that is always
accepted. Here S is a signed permutation, x ↦ s ⊙ x[σ]. Those of a density generate a group G of two
parts: label permutations P, which permute the rows of an index matrix (K components of a mixture
model, particles), and sign flips F. `fold` maps x to one point of its orbit. Continuous symmetries
are kept beside them as one-parameter groups of rotations (`rotations.py`).

A wrong symmetry is harmless: every use computes the acceptance ratio.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from involutive.core.errors import check
from involutive.involutions.blocks import AbstractInvolution
from involutive.involutions.rotations import Rotations

Vector = Float[Array, " dim"]

MOST_ELEMENTS = 1024  # of a group that is written out. A guess


class SignedPermutation(AbstractInvolution):
    """`z ↦ s ⊙ z[σ]` with σ∘σ = id and s_i s_σ(i) = 1.

    Args:
        sigma: the indices σ, their own inverse.
        signs: +1 or -1 for every coordinate.

    Raises:
        InputError: if `sigma` is no permutation with one sign each, or the map does not undo
            itself.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> flip = inv.SignedPermutation([1, 0, 2], [1, 1, -1])
        >>> [float(part) for part in flip(jnp.array([1.0, 2.0, 3.0]))[0]]
        [2.0, 1.0, -3.0]
    """

    sigma: Int[Array, " size"]
    signs: Float[Array, " size"]

    def __init__(self, sigma: object, signs: object):
        order, found = np.asarray(sigma), np.asarray(signs, float)
        n = order.size
        check(
            order.ndim == 1 and found.shape == (n,) and set(order.tolist()) == set(range(n)),
            f"sigma must permute 0..{n - 1} with one sign each, got {order.tolist()[:12]}",
        )
        check(
            (order[order] == np.arange(n)).all() and (found * found[order] == 1).all(),
            f"a signed permutation must be its own inverse, got {order.tolist()[:12]} with signs "
            f"{found.tolist()[:12]}",
        )
        self.sigma, self.signs = jnp.asarray(order), jnp.asarray(found)

    @property
    def size(self) -> int:
        return self.sigma.shape[0]

    @property
    def volume_preserving(self) -> bool:
        return True

    def __call__(self, z: Vector) -> tuple[Vector, Float[Array, ""]]:
        return self.signs.astype(z.dtype) * z[self.sigma], jnp.zeros((), z.dtype)


class Symmetries(eqx.Module):
    """The symmetries found in a density: iterate over them as involutions, or print them in words.

    Attributes:
        labels: index matrices `(K, width)`; the rows of each are interchangeable.
        flips: `(m, dim)`, the coordinates whose signs each flip changes together.
        dim: the number of coordinates.
        rotations: one-parameter groups of rotations, None if there is none.

    Raises:
        InputError: if `labels` are not matrices of different indices below `dim` with at least two
            rows, or `flips` do not have shape `(m, dim)`.

    Example:
        >>> import involutive as inv
        >>> print(inv.symmetries(inv.targets.gaussian(2), key=0))
        2 interchangeable coordinates: 0, 1
        sign flip of coordinates 0, 1, each alone
        rotation of coordinates 0, 1
    """

    labels: tuple[Int[Array, "groups width"], ...]
    flips: Bool[Array, "m dim"]
    dim: int = eqx.field(static=True)
    rotations: Rotations | None = None  # files written before rotations were found lack it

    def __init__(
        self,
        dim: int,
        labels: Sequence[object] = (),
        flips: object = None,
        rotations: Rotations | None = None,
    ):
        rows = [np.asarray(part) for part in labels]
        used = np.concatenate([part.ravel() for part in rows]) if rows else np.zeros(0, int)
        check(
            all(part.ndim == 2 and len(part) >= 2 for part in rows)
            and len(set(used.tolist())) == used.size and np.isin(used, np.arange(dim)).all(),
            f"labels must be matrices of different indices below {dim}, got "
            f"{[part.tolist() for part in rows]}",
        )  # fmt: skip
        found = np.zeros((0, dim), bool) if flips is None else np.asarray(flips, bool)
        check(found.ndim == 2 and found.shape[1] == dim, f"flips must have shape (m, {dim})")
        self.labels = tuple(jnp.asarray(part) for part in rows)
        self.flips, self.dim = jnp.asarray(found), dim
        self.rotations = rotations if rotations is not None and len(rotations) else None

    def __len__(self) -> int:
        """How many generators there are, rotations included."""
        discrete = sum(len(part) - 1 for part in self.labels) + len(self.flips)
        return discrete + self.num_rotations

    @property
    def num_rotations(self) -> int:
        """How many one-parameter groups of rotations there are."""
        return 0 if self.rotations is None else len(self.rotations)

    def __iter__(self) -> Iterator[SignedPermutation]:
        """The involutions among the generators: exchanges with the first group, and flips."""
        for rows in map(np.asarray, self.labels):
            for row in rows[1:]:
                sigma = np.arange(self.dim)
                sigma[rows[0]], sigma[row] = row, rows[0]
                yield SignedPermutation(sigma, np.ones(self.dim))
        for flip in np.asarray(self.flips):
            yield SignedPermutation(np.arange(self.dim), np.where(flip, -1.0, 1.0))

    def __str__(self) -> str:
        lines = []
        for rows in map(np.asarray, self.labels):
            if rows.shape[1] == 1:
                lines.append(f"{len(rows)} interchangeable coordinates: {_listed(rows[:, 0])}")
            else:
                groups = ", ".join("(" + ", ".join(map(str, row)) + ")" for row in rows)
                lines.append(f"{len(rows)} interchangeable groups of coordinates: {groups}")
        flips = [np.flatnonzero(flip) for flip in np.asarray(self.flips)]
        alone = np.array([names[0] for names in flips if names.size == 1], int)
        if alone.size:
            each = ", each alone" if alone.size > 1 else ""
            lines.append(f"sign flip of coordinate{'s'[: alone.size - 1]} {_listed(alone)}{each}")
        for names in (names for names in flips if names.size > 1):
            which = f"coordinates {_listed(names)}" if names.size < self.dim else "all coordinates"
            lines.append(f"sign flip of {which} together")
        lines += [] if self.rotations is None else self.rotations.in_words()
        return "\n".join(lines) or "no symmetry found"

    def turned(self, x: Vector, angles: Float[Array, " groups"], backward: bool = False) -> Vector:
        """Rotate x by an angle of every group of rotations, in their order or the opposite one."""
        return x if self.rotations is None else self.rotations.turned(x, angles, backward)

    def permuted(self, x: Vector, levels: tuple[Float[Array, " groups"], ...]) -> Vector:
        """Permute the groups of every label matrix by the order of its `levels`."""
        for rows, level in zip(self.labels, levels, strict=True):
            x = x.at[rows].set(x[rows[jnp.argsort(level)]])
        return x

    def flipped(self, x: Vector, bits: Bool[Array, " m"]) -> Vector:
        """Apply the flips whose bit is set."""
        odd = jnp.sum(self.flips & bits[:, None], axis=0) % 2 == 1
        return jnp.where(odd, -x, x)

    def fold(self, x: Vector) -> Vector:
        """Return one point of the orbit of x.

        The coordinates of every flip have a positive sum, then groups are in the order of their
        first coordinates. Volume is preserved; the map is as many to one as the group has elements.
        """
        for flip in self.flips:
            # their sum, which a permutation among them leaves alone
            x = jnp.where(flip & (jnp.sum(jnp.where(flip, x, 0.0)) < 0), -x, x)
        return self.permuted(x, tuple(x[rows[:, 0]] for rows in self.labels))

    def elements(self, most: int = MOST_ELEMENTS) -> tuple[np.ndarray, np.ndarray]:
        """Write out a group of at most `most` elements: indices and signs, each `(n, dim)`.

        It is the whole group if that is small enough; else the flips are left out, then label
        matrices, the largest first.
        """
        labels = sorted(map(np.asarray, self.labels), key=len)
        flips: np.ndarray = np.asarray(self.flips)
        while True:
            size = _order(labels, flips)
            found = _closure(labels, flips, self.dim, most) if size <= most else None
            if found is not None:
                return found
            if len(flips):
                flips = flips[:0]
            else:
                labels.pop()


def _listed(names: np.ndarray, most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (", …" if names.size > most else "")


def _order(labels: Sequence[np.ndarray], flips: np.ndarray) -> float:
    """The minimum number of elements of the group."""
    sizes = [float(np.prod(np.arange(1, len(rows) + 1, dtype=float))) for rows in labels]
    return float(np.prod(sizes)) * 2.0 ** min(len(flips), 1000)


def _closure(
    labels: Sequence[np.ndarray], flips: np.ndarray, dim: int, most: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """All products of label permutations and flips, or None if they are more than `most`."""
    orders = [np.arange(dim)]
    for rows in labels:
        moved = []
        for order in orders:
            for turn in permutations(range(len(rows))):
                new = order.copy()
                new[rows] = order[rows[list(turn)]]
                moved.append(new)
        orders = moved
    # a flip carried by a permutation is a flip of the group too, written down or not
    signs = {tuple([1] * dim)}
    carried = {tuple(np.where(flip[order], -1, 1)) for flip in flips for order in orders}
    for flip in carried:
        signs |= {tuple(np.multiply(flip, sign)) for sign in signs}
        if len(signs) * len(orders) > most:
            return None
    pairs = [(order, sign) for order in orders for sign in sorted(signs)]
    return np.array([o for o, _ in pairs]), np.array([s for _, s in pairs], float)
