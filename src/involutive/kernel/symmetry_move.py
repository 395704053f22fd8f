"""A random element of a symmetry group as a move, and distributions made symmetric by one.

The auxiliary variable is an element g of the group: (x, g) ↦ (g x, g⁻¹). A label permutation, a set
of flips and the angles of rotations are drawn uniformly and applied in one order or in the opposite
one with even chances, so that g and g⁻¹ are equally likely. Where the density has the symmetry the
move is accepted always.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, Key

from involutive.core.errors import check
from involutive.involutions.symmetries import MOST_ELEMENTS, Symmetries
from involutive.kernel.kernel import AbstractKernel, Info, Proposed, State, evaluate, settle
from involutive.targets.target import Target


class Element(NamedTuple):
    """What is random in a move."""

    levels: tuple[Float[Array, " groups"], ...]
    bits: Bool[Array, " m"]
    angles: Float[Array, " groups"]
    flips_first: Bool[Array, ""]
    accept: Float[Array, ""]


class SymmetryMove(AbstractKernel):
    """Move to a random point of the orbit of x under a group of symmetries.

    It only changes labels, signs and angles: combine it with another kernel by `inv.Cycle`.

    Args:
        target: the density to leave invariant.
        symmetries: what `inv.symmetries` found.
        initial: the distribution that chains start from when no positions are given.

    Raises:
        InputError: if the symmetries are of another number of coordinates, or there are none.

    Example:
        >>> import involutive as inv
        >>> target = inv.targets.gaussian(2)
        >>> move = inv.SymmetryMove(target, inv.symmetries(target, key=0))
        >>> kernel = inv.Cycle([inv.random_walk(target, 1.0), move])
        >>> inv.sample(kernel, key=0, num_chains=2, num_samples=5).positions.shape
        (2, 5, 2)
    """

    target: Target
    initial: AbstractDistribution | None
    symmetries: Symmetries

    def __init__(
        self, target: Target, symmetries: Symmetries, initial: AbstractDistribution | None = None
    ):
        check(
            symmetries.dim == target.dim,
            f"symmetries must be of {target.dim} coordinates, got {symmetries.dim}",
        )
        check(len(symmetries) > 0, "symmetries must hold at least one symmetry, got none")
        self.target, self.symmetries, self.initial = target, symmetries, initial

    def draw(self, key: Key[Array, ""]) -> Element:
        key_levels, key_bits, key_angles, key_first, key_accept = jr.split(key, 5)
        labels = self.symmetries.labels
        keys = jr.split(key_levels, len(labels) + 1)
        levels = tuple(jr.uniform(keys[i], (len(rows),)) for i, rows in enumerate(labels))
        bits = jr.bernoulli(key_bits, shape=(len(self.symmetries.flips),))
        accept = jr.exponential(key_accept, dtype=jnp.result_type(float))
        count, dtype = self.symmetries.num_rotations, jnp.result_type(float)
        angles = jr.uniform(key_angles, (count,), dtype, -jnp.pi, jnp.pi)
        return Element(levels, bits, angles, jr.bernoulli(key_first), accept)

    def move(self, noise: Element, state: State) -> tuple[State, Info]:
        x, group = state.position, self.symmetries
        flipped = group.flipped(x, noise.bits)
        first = group.turned(group.permuted(flipped, noise.levels), noise.angles)
        back = group.turned(x, noise.angles, backward=True)
        last = group.flipped(group.permuted(back, noise.levels), noise.bits)
        moved = jnp.where(noise.flips_first, first, last)
        density = evaluate(self.target, moved)
        ratio = density - state.log_density
        ratio = jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)
        proposal = Proposed(State(moved, density), moved[:0], ratio, jnp.array(True))
        return settle(noise.accept, state, proposal)


class Symmetrised(AbstractDistribution):
    """`q_G(x) = (1/|G|) Σ_{g in G} q(g x)`: a distribution made symmetric under a group.

    It is the distribution of a draw of q that a uniform random element of G has moved. If q is
    fitted to folded draws, it needs the components of only one of the K! orders of K labels.

    Args:
        base: q, any FlowJAX distribution of one vector.
        symmetries: the generators of G; if G is large, a subgroup is used.
        most: the maximum number of elements of G.

    Raises:
        InputError: if `base` has another number of coordinates than the symmetries.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> both = inv.Symmetries(2, labels=[[[0], [1]]])
        >>> one = inv.GaussianMixture(jnp.ones(1), jnp.array([[3.0, 0.0]]), jnp.eye(2)[None])
        >>> q = inv.Symmetrised(one, both)
        >>> bool(q.log_prob(jnp.array([3.0, 0.0])) == q.log_prob(jnp.array([0.0, 3.0])))
        True
    """

    base: AbstractDistribution
    orders: Int[Array, "n dim"]
    signs: Float[Array, "n dim"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(
        self, base: AbstractDistribution, symmetries: Symmetries, most: int = MOST_ELEMENTS
    ):
        check(
            base.shape == (symmetries.dim,),
            f"base must be a distribution of {symmetries.dim} coordinates, got {base.shape}",
        )
        orders, signs = symmetries.elements(most)
        self.base = base
        self.orders, self.signs = jnp.asarray(orders), jnp.asarray(signs, float)
        self.shape, self.cond_shape = base.shape, None

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        images = self.signs * x[self.orders]
        return logsumexp(jax.vmap(self.base.log_prob)(images)) - np.log(self.orders.shape[0])

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_base, key_element = jr.split(key)
        at = jr.randint(key_element, (), 0, self.orders.shape[0])
        return self.signs[at] * self.base.sample(key_base)[self.orders[at]]
