"""The classes and functions that saved files may name: ours, and those of the libraries below."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flowjax.distributions as fd
import jax
import jax.numpy as jnp
import numpy as np
import paramax
from flowjax import bijections as fb
from flowjax.flows import _affine_with_min_scale
from flowjax.utils import get_ravelled_pytree_constructor

from involutive.auxiliary import GaussianMixture
from involutive.bijections.couplings import AdditiveCoupling
from involutive.core.errors import check
from involutive.involutions.blocks import (
    Conjugate,
    FunctionBlock,
    MatrixBlock,
    PermutationBlock,
    Sandwich,
)
from involutive.involutions.classical import Directed, Leapfrog, RandomWalk
from involutive.involutions.lattice import Lattice, LatticeMatrix
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import Kernel
from involutive.storage.codec import origin, register, register_closure


def _made_by(function: Any, module: str, qualname: str) -> dict[str, Any] | None:
    """The captured variables of `function` if it is the local function of that name, else None."""
    inner = inspect.unwrap(function) if callable(function) else None
    if not inspect.isfunction(inner) or origin(inner) != (module, qualname):
        return None
    return dict(inspect.getclosurevars(inner).nonlocals)


def _captured(module: str, qualname: str, *names: str) -> Callable[[Any], dict[str, Any] | None]:
    def recognise(function: Any) -> dict[str, Any] | None:
        found = _made_by(function, module, qualname)
        return None if found is None else {name: found[name] for name in names}

    return recognise


def _constructor(function: Any) -> dict[str, Any] | None:
    """FlowJAX's function from flat parameters to a transformer; at zero it is the original one."""
    found = _made_by(
        function, "flowjax.utils", "get_ravelled_pytree_constructor.<locals>.constructor"
    )
    return None if found is None else {"transformer": function(jnp.zeros_like(found["init"]))}


def _build_constructor(transformer: Any) -> Callable:
    return get_ravelled_pytree_constructor(
        transformer,
        filter_spec=eqx.is_inexact_array,
        is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable),
    )[0]


def _register_closures() -> None:
    inside = "flowjax.bijections."
    register_closure(
        "flowjax.triangular",
        _captured(inside + "affine", "TriangularAffine.__init__.<locals>._to_triangular", "lower"),
        lambda lower: _fn(fb.TriangularAffine(jnp.zeros(1), jnp.eye(1), lower=lower).triangular),
    )
    register_closure(
        "flowjax.spline_derivatives",
        _captured(
            inside + "rational_quadratic_spline",
            "RationalQuadraticSpline.__init__.<locals>.<lambda>",
            "min_derivative",
        ),
        lambda min_derivative: _fn(
            fb.RationalQuadraticSpline(
                knots=1, interval=1, min_derivative=min_derivative
            ).derivatives
        ),
    )
    register_closure(
        "flowjax.unit",
        _captured(inside + "orthogonal", "Householder.__init__.<locals>.<lambda>"),
        lambda: _fn(fb.Householder(jnp.ones(1)).unit_vec),
    )
    register_closure(
        "flowjax.min_scale",
        _captured("flowjax.flows", "_affine_with_min_scale.<locals>.<lambda>", "min_scale"),
        lambda min_scale: _fn(_affine_with_min_scale(min_scale).scale),
    )
    register_closure("flowjax.constructor", _constructor, _build_constructor)


def _fn(wrapped: Any) -> Callable:
    """The function inside a `Parameterize`."""
    return wrapped.fn


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


def _power_of_two(grid: Any) -> bool:
    return isinstance(grid, float) and grid > 0 and math.frexp(grid)[0] == 0.5


def _register_known() -> None:
    own: list[tuple[type, Callable[[Any], object] | None]] = [
        (FunctionBlock, lambda f: FunctionBlock(f.g)),
        (PermutationBlock, lambda f: PermutationBlock(f.sigma)),
        (MatrixBlock, _check_matrix),
        (Sandwich, lambda f: Sandwich(f.outer, f.inner)),
        (Conjugate, lambda f: Conjugate(f.g, f.inner)),
        (Lattice, _check_lattice),
        (LatticeMatrix, _check_lattice),
        (RandomWalk, lambda f: RandomWalk(f.scale, f.dim)),
        (Leapfrog, None),
        (Directed, None),
        (AdditiveCoupling, _check_coupling),
        (GaussianMixture, None),
        (
            Kernel,
            lambda k: Kernel(k.target, k.involution, k.auxiliary, k.initial, k.guard),
        ),
        (Mixture, lambda k: Mixture(k.kernels, k.probabilities)),
        (Cycle, lambda k: Cycle(k.kernels)),
    ]
    for cls, rule in own:
        register(cls, check=rule)
    for name in fb.__all__:
        if name != "AbstractBijection":
            register(getattr(fb, name), f"flowjax.{name}")
    register(fb.Permute, "flowjax.Permute", check=_check_permute)
    for name, cls in vars(fd).items():
        law = isinstance(cls, type) and issubclass(cls, fd.AbstractDistribution)
        if law and not inspect.isabstract(cls):
            register(cls, f"flowjax.{name}")
    for name in ("Parameterize", "NonTrainable", "WeightNormalization"):
        register(getattr(paramax, name), f"paramax.{name}")
    register(paramax.RealToIncreasingOnInterval, "paramax.RealToIncreasingOnInterval")
    for name in ("MLP", "Linear", "Identity", "Lambda", "Sequential", "LayerNorm"):
        register(getattr(eqx.nn, name), f"equinox.{name}")
    register(eqx.if_array, "equinox.if_array")
    _register_functions()
    _register_closures()


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


_register_known()
