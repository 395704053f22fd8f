"""Which coordinates of its argument a traced program reads, and which indices miss their axis.

Liveness, element by element, from the result back to the argument: a number that nothing needs is
not read. What an operation without a rule needs of its operands is not known, so it may read all of
them; `PERHAPS` marks such numbers, so that nobody is told of a coordinate that is in use.

Symptom: a density that ignores a coordinate evaluates like any other, and its chains drift along
that coordinate for ever. Seen with jax 0.10.2: `python -m involutive.bench.xla indexing` prints its
value, and the error that `Target` raises instead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import PyTree

from involutive._xla.compilation import SHORT
from involutive._xla.constants import Missed, called, constants, small
from involutive._xla.program import shape_of

Params = Mapping[str, Any]  # of an operation, by name
Shapes = Sequence[tuple[int, ...]]  # of its operands
Values = Sequence[np.ndarray | None]  # of operands that are constants
Needs = Sequence[np.ndarray]  # how much is needed of each result

UNREAD, PERHAPS, READ = np.int8(0), np.int8(1), np.int8(2)

ELEMENTWISE = frozenset(
    ("abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e",
     "bessel_i1e", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh",
     "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
     "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min",
     "mul", "ne", "neg", "nextafter", "not", "or", "pow", "real", "reduce_precision", "rem",
     "round", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub",
     "tan", "tanh", "xor")
)  # fmt: skip
OUTSIDE = ("while", "callback")  # operations of no known length, or of no known cost


class Reading(NamedTuple):
    """What a program does with its argument.

    Attributes:
        coordinates: for each coordinate `UNREAD`, `PERHAPS` or `READ`.
        missed: indices outside their axis, where what is indexed depends on the argument.
        bounded: whether it neither loops until a condition holds nor calls Python.
        out: shapes and dtypes of the result, as a pytree.
        value: the program as a compiled function.
    """

    coordinates: np.ndarray
    missed: list[Missed]
    bounded: bool
    out: PyTree
    value: Callable[[Any], Any]


def reading_of(function: Callable, dim: int) -> Reading:
    """Trace a function of one vector, without running it, and follow what it reads."""
    point = jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
    program, out = jax.make_jaxpr(lambda x: function(x), return_shape=True)(point)
    text = str(program.jaxpr)
    bounded = not any(name in text for name in OUTSIDE)
    try:
        coordinates, missed = _read(program)
    except Exception:  # an operation of another release of JAX; what cannot be read is not judged
        coordinates, missed = np.full(dim, PERHAPS), []
    run = jax.jit(jaxpr_as_fun(program), compiler_options=SHORT)
    return Reading(coordinates, missed, bounded, out, lambda x: run(x)[0])


def _read(program: ClosedJaxpr) -> tuple[np.ndarray, list[Missed]]:
    missed: list[Missed] = []
    held = [small(value) for value in program.consts]
    constants(program.jaxpr, [*held, None], [False] * len(held) + [True], missed)
    needs = [np.full(shape_of(v), READ) for v in program.jaxpr.outvars]
    return _backward(program.jaxpr, [*held, None], needs)[-1], missed


def _backward(program: Jaxpr, known: Sequence[Any], needs: Sequence[np.ndarray]) -> list[Any]:
    """How much is needed of each constant and argument, given what is needed of the results."""
    env = constants(program, known, [False] * len(known), [])
    need: dict[Any, np.ndarray] = {}

    def add(atom: Var | Literal, more: np.ndarray) -> None:
        if not isinstance(atom, Literal):
            need[atom] = np.asarray(np.maximum(need.get(atom, UNREAD), more))

    for atom, more in zip(program.outvars, needs, strict=True):
        add(atom, more)
    for equation in reversed(program.eqns):
        outs = [need.get(v, np.full(shape_of(v), UNREAD)) for v in equation.outvars]
        if equation.effects or any(out.any() for out in outs):
            values = [env.value(atom) for atom in equation.invars]
            for atom, more in zip(equation.invars, _needs(equation, values, outs), strict=True):
                add(atom, more)
    return [
        need.get(v, np.full(shape_of(v), UNREAD)) for v in (*program.constvars, *program.invars)
    ]


def _needs(equation: JaxprEqn, values: Values, outs: list[np.ndarray]) -> list[np.ndarray]:
    inner, name = called(equation), equation.primitive.name
    shapes = [shape_of(atom) for atom in equation.invars]
    if inner is not None:
        consts = [small(value) for value in inner.consts]
        return _backward(inner.jaxpr, [*consts, *values], outs)[len(consts) :]
    if name in ELEMENTWISE:
        return [_elementwise(name, i, shape, values, outs[0]) for i, shape in enumerate(shapes)]
    rule = NEED.get(name)
    parts = None if rule is None else rule(equation.params, shapes, values, outs)
    if parts is None:
        return [np.full(shape, PERHAPS) for shape in shapes]
    # operands beyond these are read whole: indices, factors of a product
    return [*parts, *(np.full(shape, READ) for shape in shapes[len(parts) :])]


def _elementwise(
    name: str, i: int, shape: tuple[int, ...], values: Sequence[Any], out: np.ndarray
) -> np.ndarray:
    if name == "mul" and values[1 - i] is not None:
        zero = np.broadcast_to(values[1 - i], out.shape) == 0
        out = np.asarray(np.where(zero, UNREAD, out))
    return out if shape == out.shape else np.full(shape, out.max(initial=UNREAD))


def _sliced(shape: tuple[int, ...], place: tuple[slice, ...], out: np.ndarray) -> np.ndarray:
    need = np.full(shape, UNREAD)
    need[place] = out
    return need


def _slice(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    steps = params["strides"] or (1,) * len(shapes[0])
    ranges = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return [_sliced(shapes[0], tuple(slice(*each) for each in ranges), outs[0])]


def _dynamic_slice(
    params: Params, shapes: Shapes, values: Values, outs: Needs
) -> list[np.ndarray] | None:
    places = [value for value in values[1:] if value is not None]
    if len(places) < len(values) - 1:
        return None
    bounds = zip(shapes[0], params["slice_sizes"], places, strict=True)
    starts = [(int(np.clip(at, 0, n - size)), size) for n, size, at in bounds]
    return [_sliced(shapes[0], tuple(slice(at, at + size) for at, size in starts), outs[0])]


def _gather(params: Params, shapes: Shapes, values: Values, outs: Needs) -> list[np.ndarray] | None:
    """Indices along one axis that keep nothing of it, which is what `x[indices]` becomes."""
    numbers, indices = params["dimension_numbers"], values[1]
    axes = numbers.start_index_map
    single = len(axes) == 1 and numbers.collapsed_slice_dims == axes and len(shapes[0]) == 1
    if indices is None or not single:
        return None
    need = np.full(shapes[0], UNREAD)
    np.maximum.at(need, np.clip(indices[..., 0], 0, shapes[0][0] - 1), outs[0])
    return [need]


def _broadcast_back(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    kept = params["broadcast_dimensions"]
    lost = tuple(axis for axis in range(outs[0].ndim) if axis not in kept)
    need = np.asarray(outs[0].max(axis=lost, initial=UNREAD))
    for axis, length in enumerate(shapes[0]):
        if length == 1:
            need = need.max(axis=axis, keepdims=True, initial=UNREAD)
    return [need]


def _reduced(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    return [np.broadcast_to(np.expand_dims(outs[0], tuple(params["axes"])), shapes[0])]


def _split(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    return [np.concatenate(outs, params["axis"])]


def _concatenate(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    axis = params["dimension"]
    return np.split(outs[0], np.cumsum([shape[axis] for shape in shapes])[:-1], axis)


def _reshaped(params: Params, shapes: Shapes, _: Values, outs: Needs) -> list[np.ndarray]:
    return [outs[0].reshape(shapes[0])]


NEED: Mapping[str, Callable[..., list[np.ndarray] | None]] = {
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "broadcast_in_dim": _broadcast_back,
    "split": _split,
    "concatenate": _concatenate,
    "squeeze": _reshaped,
    "reshape": _reshaped,
    "expand_dims": _reshaped,
    "transpose": lambda p, shapes, _, outs: [outs[0].transpose(np.argsort(p["permutation"]))],
    "dot_general": lambda p, shapes, _, outs: [],
    "rev": lambda p, shapes, _, outs: [np.flip(outs[0], p["dimensions"])],
} | dict.fromkeys(
    ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), _reduced
)
