"""One table of every involution: a new block joins all the laws by one line here.

Each entry maps a key to an involution of `SIZE` coordinates, except where its name says otherwise.
`hostile` scales every trainable weight, as a long and unlucky training run might.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax import bijections as fb
from jaxtyping import Array, Key

import involutive as inv
from involutive.involutions.classical import Directed, Leapfrog, RandomWalk
from involutive.kernel.classical import a_nice_network

SIZE = 6

Make = Callable[[Key[Array, ""]], inv.AbstractInvolution]


def skewed(dim: int) -> inv.Target:
    """A density without symmetry: a normal tilted by a sigmoid, its coordinates coupled."""

    def log_density(x: Array) -> Array:
        tilt = jnp.sum(jax.nn.log_sigmoid(2 * x))
        return -0.5 * jnp.sum(x**2) + tilt - 0.1 * (x[0] - x[-1]) ** 2

    return inv.Target(log_density, dim, name="skewed")


def additive(dim: int, blocks: int = 2) -> Callable[[Key[Array, ""]], fb.AbstractBijection]:
    """A maker of cascades of additive couplings."""
    return lambda key: inv.additive_cascade(key, dim, blocks)


def spline(dim: int) -> Callable[[Key[Array, ""]], fb.AbstractBijection]:
    """A maker of couplings by rational quadratic splines: not volume preserving."""

    def make(key: Key[Array, ""]) -> fb.AbstractBijection:
        spline = fb.RationalQuadraticSpline(knots=4, interval=4)
        coupling = fb.Coupling(
            key, transformer=spline, untransformed_dim=dim // 2, dim=dim, nn_width=8, nn_depth=1
        )
        return fb.Chain([coupling, fb.Flip((dim,))])

    return make


def autoregressive(dim: int) -> Callable[[Key[Array, ""]], fb.AbstractBijection]:
    """A maker of masked autoregressive affine maps: not volume preserving."""

    def make(key: Key[Array, ""]) -> fb.AbstractBijection:
        with jax.numpy_rank_promotion("allow"):  # FlowJAX builds its masks by promotion
            return fb.MaskedAutoregressive(
                key, transformer=fb.Affine(), dim=dim, nn_width=8, nn_depth=1
            )

    return make


def affine(dim: int) -> fb.AbstractBijection:
    """A constant scaling: its determinant is not one, but the same everywhere."""
    return fb.Affine(jnp.linspace(-1, 1, dim), jnp.linspace(0.5, 2, dim))


def bent(dim: int) -> fb.AbstractBijection:
    """An elementwise bend, whose determinant changes from place to place."""
    return fb.Invert(fb.LeakyTanh(1.5, (dim,)))


def nested(key: Key[Array, ""]) -> inv.AbstractInvolution:
    """Every way to build an involution, inside one another."""
    keys = jr.split(key, 5)
    inner = inv.Sandwich(
        inv.FunctionBlock(additive(SIZE // 2)(keys[0])), inv.MatrixBlock.random(keys[1], SIZE)
    )
    outer = inv.PermutationBlock.random(keys[2], SIZE)
    return inv.Conjugate(spline(SIZE)(keys[3]), inv.Sandwich(outer, inner))


def in_lattice(key: Key[Array, ""]) -> inv.AbstractInvolution:
    """All that lattice mode accepts, inside one another."""
    keys = jr.split(key, 4)
    inner = inv.Sandwich(
        inv.FunctionBlock(additive(SIZE // 2)(keys[0])), inv.PermutationBlock.random(keys[1], SIZE)
    )
    g = fb.Chain([additive(SIZE)(keys[2]), fb.Flip((SIZE,)), fb.Invert(additive(SIZE)(keys[3]))])
    return inv.Sandwich(inv.MatrixBlock.random(7, SIZE), inv.Conjugate(g, inner))


def hostile(make: Make, factor: float) -> Make:
    """The same involution with its weights scaled by `factor`."""

    def scaled(leaf: Array) -> Array:
        return factor * leaf if eqx.is_inexact_array(leaf) else leaf

    return lambda key: jax.tree.map(scaled, make(key))


def leapfrog(tilt: float) -> Make:
    """Five leapfrog steps, preconditioned by a triangular matrix if `tilt` is not zero."""

    def make(key: Key[Array, ""]) -> inv.AbstractInvolution:
        dim = SIZE // 2
        scale = jnp.eye(dim) + tilt * jnp.eye(dim, k=-1) if tilt else jnp.ones(dim)
        return Leapfrog(skewed(dim), jnp.asarray(0.2), scale, 5)

    return make


INVOLUTIONS: Mapping[str, Make] = {
    "permutation": lambda key: inv.PermutationBlock([3, 1, 5, 0, 4, 2]),  # across the halves
    "signed-permutation": lambda key: inv.SignedPermutation(
        [3, 1, 5, 0, 4, 2], [-1, -1, 1, -1, 1, 1]
    ),
    "permutation-odd": lambda key: inv.PermutationBlock.random(key, 7),
    "swap": lambda key: inv.PermutationBlock.swap(SIZE),
    "sign-flip": lambda key: inv.SignFlipBlock([1, -1, -1, 1, -1, 1]),
    "sign-flip-conjugate": lambda key: inv.Conjugate(
        additive(SIZE)(key), inv.SignFlipBlock.momentum(SIZE // 2, SIZE // 2)
    ),
    "matrix": lambda key: inv.MatrixBlock.random(key, SIZE),
    "matrix-by-hand": lambda key: inv.MatrixBlock(
        jr.normal(key, (SIZE,)), jnp.eye(SIZE)[0] - 0.3 * jnp.eye(SIZE)[2]
    ),
    "matrix-odd": lambda key: inv.MatrixBlock.random(key, 5),
    "matrix-steep": lambda key: inv.MatrixBlock.trainable(jnp.eye(SIZE)[0], jnp.eye(SIZE)[1]),
    "function-additive": lambda key: inv.FunctionBlock(additive(SIZE // 2)(key)),
    "function-affine": lambda key: inv.FunctionBlock(affine(SIZE // 2)),
    "function-bent": lambda key: inv.FunctionBlock(bent(SIZE // 2)),
    "function-spline": lambda key: inv.FunctionBlock(spline(SIZE // 2)(key)),
    "function-autoregressive": lambda key: inv.FunctionBlock(autoregressive(SIZE // 2)(key)),
    "conjugate-additive": lambda key: inv.Conjugate(
        additive(SIZE)(key), inv.PermutationBlock.swap(SIZE)
    ),
    "conjugate-affine": lambda key: inv.Conjugate(affine(SIZE), inv.MatrixBlock.random(key, SIZE)),
    "conjugate-spline": lambda key: inv.Conjugate(
        spline(SIZE)(key), inv.PermutationBlock.swap(SIZE)
    ),
    "conjugate-autoregressive": lambda key: inv.Conjugate(
        autoregressive(SIZE)(key), inv.PermutationBlock.swap(SIZE)
    ),
    "sandwich": lambda key: inv.Sandwich(
        inv.MatrixBlock.random(key, SIZE), inv.PermutationBlock.random(3, SIZE)
    ),
    "nested": nested,
    "paper": lambda key: inv.paper_network(key, state_dim=2, aux_dim=4),
    "paper-scaled": lambda key: inv.paper_network(key, state_dim=2, aux_dim=4, scale=4.0),
    "paper-32": lambda key: inv.paper_network(key),
    "swap-network": lambda key: inv.swap_network(key, 2, 4),
    "random-walk": lambda key: RandomWalk(0.7, SIZE // 2),
    "random-walk-matrix": lambda key: RandomWalk(jr.normal(key, (3, 3)), SIZE // 2),
    "leapfrog": leapfrog(0.0),
    "leapfrog-preconditioned": leapfrog(0.3),
    "directed": lambda key: Directed(a_nice_network(key, 2, 3)),
    "directed-spline": lambda key: Directed(spline(SIZE - 1)(key)),
    "hostile-paper": hostile(lambda key: inv.paper_network(key, 2, 4), 2.0),
}

LATTICE: Mapping[str, Make] = {
    "permutation": INVOLUTIONS["permutation"],
    "sign-flip": INVOLUTIONS["sign-flip-conjugate"],
    "matrix": INVOLUTIONS["matrix"],
    "matrix-steep": INVOLUTIONS["matrix-steep"],
    "function": INVOLUTIONS["function-additive"],
    "conjugate": INVOLUTIONS["conjugate-additive"],
    "sandwich": INVOLUTIONS["sandwich"],
    "nested": in_lattice,
    "paper": INVOLUTIONS["paper-32"],
    "swap-network": INVOLUTIONS["swap-network"],
}


def on_lattice(make: Make) -> Make:
    """The same involution in lattice mode."""
    return lambda key: inv.lattice(make(key))


ALL: Mapping[str, Make] = {
    **INVOLUTIONS,
    **{f"lattice-{name}": on_lattice(make) for name, make in LATTICE.items()},
}
