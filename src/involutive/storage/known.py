"""The classes and functions that saved files may name: ours, and those of the libraries below."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flowjax.distributions as fd
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
from flowjax import bijections as fb
from flowjax.flows import coupling_flow
from flowjax.utils import get_ravelled_pytree_constructor

from involutive.auxiliary import (
    ConditionalNormal,
    GaussianMixture,
    Joined,
    ManyNormal,
    MultipleTry,
)
from involutive.auxiliary.covered import Covered
from involutive.auxiliary.defensive import DefensiveMixture
from involutive.auxiliary.hierarchical import Hierarchical
from involutive.auxiliary.products import ProductMixture
from involutive.auxiliary.student import StudentTMixture
from involutive.bijections.couplings import AdditiveCoupling, AffineCoupling
from involutive.bijections.whitening import Whitening
from involutive.core.errors import check
from involutive.involutions.blocks import (
    Conjugate,
    FunctionBlock,
    PermutationBlock,
    Sandwich,
    SignFlipBlock,
)
from involutive.involutions.classical import Directed, Leapfrog, RandomWalk
from involutive.involutions.lattice import Lattice, LatticeMatrix
from involutive.involutions.matrix import MatrixBlock
from involutive.involutions.rotations import Rotations
from involutive.involutions.symmetries import SignedPermutation, Symmetries
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import Kernel
from involutive.kernel.ladder import Ladder
from involutive.kernel.persistent import Persistent
from involutive.kernel.replicas import Tempered
from involutive.kernel.symmetry_move import Symmetrised, SymmetryMove
from involutive.storage.codec import InnerFunction, register


def _transformer(constructor: Callable[..., Any]) -> dict[str, Any]:
    """What FlowJAX's function from flat parameters makes; documented: at zero, the original."""
    return {"transformer": constructor(jnp.zeros(()))}


def _constructor(transformer: fb.AbstractBijection) -> Callable[..., Any]:
    return get_ravelled_pytree_constructor(
        transformer,
        filter_spec=eqx.is_inexact_array,
        is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable),
    )[0]


def _softplus_above(min_scale: float) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jax.nn.softplus(x) + min_scale


def _scale_of_flows() -> Callable[..., Any]:
    """The scale's function in the affine maps of FlowJAX's flows, which no constructor takes."""
    flow = coupling_flow(
        jr.key(0), base_dist=fd.Normal(jnp.zeros(2)), flow_layers=1, nn_width=1, nn_depth=1
    )
    is_coupling = lambda node: isinstance(node, fb.Coupling)  # noqa: E731
    parts = jax.tree.leaves(flow, is_leaf=is_coupling)
    coupling = next(part for part in parts if is_coupling(part))
    return _transformer(coupling.transformer_constructor)["transformer"].scale.fn


def _register_inner() -> None:
    """Functions that FlowJAX's constructors make and keep in the modules they return."""
    inner = {
        "flowjax.triangular": InnerFunction(
            lambda lower: (
                fb.TriangularAffine(jnp.zeros(1), jnp.eye(1), lower=lower).triangular.fn  # type: ignore[union-attr]
            ),
            {"lower": True},
        ),
        "flowjax.spline_derivatives": InnerFunction(
            lambda min_derivative: (
                fb.RationalQuadraticSpline(
                    knots=1, interval=1, min_derivative=min_derivative
                ).derivatives.fn  # type: ignore[attr-defined]
            ),
            {"min_derivative": 1e-3},
        ),
        "flowjax.unit": InnerFunction(lambda: fb.Householder(jnp.ones(1)).unit_vec.fn, {}),  # type: ignore[union-attr]
        "flowjax.min_scale": InnerFunction(
            _softplus_above, {"min_scale": 1e-2}, also=_scale_of_flows
        ),
        "flowjax.constructor": InnerFunction(
            _constructor, {"transformer": fb.Affine()}, _transformer
        ),
    }
    for name, item in inner.items():
        register(item, name)


def _check_permute(found: fb.Permute) -> None:
    size = math.prod(found.shape)
    there, back = (
        np.ravel_multi_index([np.asarray(i) for i in index], found.shape).reshape(-1, size)
        for index in (found.permutation, found.inverse_permutation)
    )  # one row, or one for each bijection of a stack
    check(
        (np.take_along_axis(back, there, axis=1) == np.arange(size)).all(),
        "a permutation and its inverse must undo each other",
    )


def _check_coupling(found: AdditiveCoupling) -> None:
    AdditiveCoupling(found.net, found.shape[0], found.split, found.flip, found.grid)
    check(found.grid is None or _power_of_two(found.grid), f"grid must be 2^-k, got {found.grid}")


def _check_lattice(found: Lattice | LatticeMatrix) -> None:
    check(_power_of_two(found.grid), f"grid must be 2^-k, got {found.grid}")


def _check_matrix(found: MatrixBlock) -> None:
    check(found.v.ndim == 1 and found.v.shape == found.w.shape, "v and w must have one size")


def _power_of_two(grid: object) -> bool:
    return isinstance(grid, float) and grid > 0 and math.frexp(grid)[0] == 0.5


def _own() -> list[tuple[type, Callable[[Any], object] | None]]:
    """The classes of this package, each with the check of what a file says of it."""
    return [
        (FunctionBlock, lambda f: FunctionBlock(f.g)),
        (PermutationBlock, lambda f: PermutationBlock(f.sigma)),
        (MatrixBlock, _check_matrix),
        (SignFlipBlock, None),
        (Sandwich, lambda f: Sandwich(f.outer, f.inner)),
        (Conjugate, lambda f: Conjugate(f.g, f.inner)),
        (Lattice, _check_lattice),
        (LatticeMatrix, _check_lattice),
        (RandomWalk, lambda f: RandomWalk(f.scale, f.dim)),
        (Leapfrog, None),
        (Directed, None),
        (AdditiveCoupling, _check_coupling),
        (AffineCoupling, None),
        (Whitening, None),
        (GaussianMixture, None),
        (ConditionalNormal, None),
        (ManyNormal, None),
        (DefensiveMixture, None),
        (MultipleTry, None),
        (Covered, None),
        (ProductMixture, None),
        (Hierarchical, None),
        (StudentTMixture, None),
        (Kernel, lambda k: Kernel(k.target, k.involution, k.auxiliary, k.initial, k.guard)),
        (Mixture, lambda k: Mixture(k.kernels, k.probabilities)),
        (Cycle, lambda k: Cycle(k.kernels)),
        (Persistent, lambda k: Persistent(k.kernel, k.memory)),
        (Joined, lambda f: Joined(f.first, f.second, f.share)),
        (Tempered, lambda k: Tempered(k.target, k.reference, k.betas, k.steps, k.scales)),
        (Ladder, None),
        (SignedPermutation, lambda f: SignedPermutation(f.sigma, f.signs)),
        (Rotations, lambda r: Rotations(r.dim, r.groups())),
        (Symmetries, lambda f: Symmetries(f.dim, f.labels, f.flips, f.rotations)),
        (SymmetryMove, lambda k: SymmetryMove(k.target, k.symmetries, k.initial)),
        (Symmetrised, None),
    ]


def _register_flowjax() -> None:
    for name in fb.__all__:
        if name != "AbstractBijection":
            register(getattr(fb, name), f"flowjax.{name}")
    register(fb.Permute, "flowjax.Permute", check=_check_permute)
    for name, cls in vars(fd).items():
        law = isinstance(cls, type) and issubclass(cls, fd.AbstractDistribution)
        if law and not inspect.isabstract(cls):
            register(cls, f"flowjax.{name}")


def _register_modules() -> None:
    for name in ("Parameterize", "NonTrainable", "WeightNormalization"):
        register(getattr(paramax, name), f"paramax.{name}")
    register(paramax.RealToIncreasingOnInterval, "paramax.RealToIncreasingOnInterval")
    for name in ("MLP", "Linear", "Identity", "Lambda", "Sequential", "LayerNorm"):
        register(getattr(eqx.nn, name), f"equinox.{name}")
    register(eqx.if_array, "equinox.if_array")


def _register_functions() -> None:
    for module, names in {
        jax.nn: (
            "relu", "relu6", "sigmoid", "softplus", "silu", "gelu", "elu", "selu", "celu", "mish",
            "leaky_relu", "soft_sign", "log_sigmoid", "hard_tanh", "softmax", "squareplus",
        ),
        jnp: ("exp", "log", "tanh", "sin", "cos", "sqrt", "abs", "where", "arctan", "arcsinh"),
    }.items():  # fmt: skip
        for name in names:
            register(getattr(module, name), f"{module.__name__}.{name}")
    defaults = inspect.signature(eqx.nn.MLP.__init__).parameters
    register(defaults["activation"].default, "equinox.relu")
    register(defaults["final_activation"].default, "equinox.identity")


def _register_known() -> None:
    for cls, rule in _own():
        register(cls, check=rule)
    _register_flowjax()
    _register_modules()
    _register_functions()
    _register_inner()


_register_known()
