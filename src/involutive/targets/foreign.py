"""Distributions of other libraries as priors, by what they offer; none of them is imported here.

- FlowJAX: a transformed distribution keeps its bijection, `value = g(base value)`.
- NumPyro: the bijection to its support is NumPyro's own.
- SciPy, frozen: families that are known here, and for others `value = F⁻¹(Φ(u))` with its quantile
  function, called on the host; the distribution of u is then N(0, 1), whatever the family.
- A pair `(low, high)`: uniform, as in nautilus.
"""

import math
import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution, AbstractTransformed
from jax.scipy.stats import norm
from jaxtyping import Array, Key, Scalar
from paramax import unwrap

from involutive.core.errors import InputError, check
from involutive.targets import priors
from involutive.targets.declare import Parameter, between
from involutive.targets.supports import (
    AbstractSupport,
    Angle,
    Flat,
    Half,
    Line,
    Shape,
    UnitCube,
    Value,
)

KINDS = (
    "a support (inv.real, inv.positive, inv.interval, inv.angle, inv.simplex, inv.ordered), a "
    "prior (inv.Normal, …), or a NumPyro, FlowJAX or SciPy distribution"
)
# FlowJAX's distributions do not say their support; these bases are not the whole line
_UNIT, _HALF = ("_StandardUniform", "Beta"), ("_StandardExponential", "_StandardGamma")


def as_parameter(name: str, given: object) -> Parameter:
    """What a user gave under a name as a parameter."""
    if isinstance(given, Parameter):
        return given
    if isinstance(given, AbstractDistribution):
        return _from_flowjax(name, given)
    if any(cls.__module__.split(".")[0] == "numpyro" for cls in type(given).__mro__):
        return _from_numpyro(name, given)
    if hasattr(given, "ppf") and hasattr(given, "dist"):
        return _from_scipy(given)
    if isinstance(given, tuple | list) and len(given) == 2:
        return priors.Uniform(*given)
    uncalled = callable(given) and getattr(given, "__module__", "").startswith("involutive.")
    remedy = f"; call it: inv.{getattr(given, '__name__', name)}(...)" if uncalled else ""
    raise InputError(f"{name} must be declared by {KINDS}, got {type(given).__name__}{remedy}")


class Through(AbstractSupport):
    """`g(T(u))` of another support T and a bijection g."""

    inner: AbstractSupport
    bijection: AbstractBijection

    @property
    def shape(self) -> Shape:
        return self.bijection.shape

    @property
    def size(self) -> int:
        return self.inner.size

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        value, first = self.inner.constrain(u)
        value, second = unwrap(self.bijection).transform_and_log_det(value)
        return value, first + second

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        return self.inner.unconstrain(unwrap(self.bijection).inverse(value), key)

    def start(self, key: Key[Array, ""]) -> Flat:
        return self.inner.start(key)

    def start_log_prob(self, u: Flat) -> Scalar:
        return self.inner.start_log_prob(u)


def _from_flowjax(name: str, law: AbstractDistribution) -> Parameter:
    check(
        law.cond_shape is None,
        f"the prior of {name} must be an unconditional distribution, got one with condition shape "
        f"{law.cond_shape}",
    )
    return Parameter(
        _flowjax_support(law), (), law.log_prob, lambda key: law.sample(key), type(law).__name__
    )


def _flowjax_support(law: AbstractDistribution) -> AbstractSupport:
    if isinstance(law, AbstractTransformed):
        return Through(inner=_flowjax_support(law.base_dist), bijection=law.bijection)  # type: ignore[call-arg]
    if type(law).__name__ in _UNIT:
        return between(np.zeros(()), np.ones(()), law.shape)
    return Half(law.shape) if type(law).__name__ in _HALF else Line(law.shape)


@runtime_checkable
class Transform(Protocol):
    """A bijection of NumPyro's."""

    def __call__(self, x: Array, /) -> Array: ...

    def _inverse(self, y: Array, /) -> Array: ...

    def log_abs_det_jacobian(self, x: Array, y: Array, /) -> Array: ...

    def inverse_shape(self, shape: Shape, /) -> Shape: ...


class NumpyroSupport(AbstractSupport):
    """NumPyro's own bijection from R^size to a support."""

    transform: Transform = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.transform.inverse_shape(self.shape))

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        u = u.reshape(self.transform.inverse_shape(self.shape))
        value = self.transform(u)
        return value, jnp.sum(self.transform.log_abs_det_jacobian(u, value))

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        return jnp.ravel(self.transform._inverse(value))

    def start(self, key: Key[Array, ""]) -> Flat:
        return jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return jnp.sum(norm.logpdf(u))


def _from_numpyro(name: str, law: Any) -> Parameter:
    support = getattr(law, "support", None)
    check(
        support is not None and hasattr(law, "log_prob") and hasattr(law, "sample"),
        f"{name} must be declared by {KINDS}, got {type(law).__name__} of NumPyro",
    )
    check(
        not getattr(support, "is_discrete", False),
        f"the prior of {name} must be continuous, but {type(law).__name__} is discrete; sum it out "
        "of the likelihood",
    )
    _check_drawable(name, law)
    where = _numpyro_support(name, law, tuple(law.batch_shape) + tuple(law.event_shape))

    def draw(key: Key[Array, ""]) -> Array:
        return law.sample(key)

    return Parameter(where, (), lambda x: jnp.sum(law.log_prob(x)), draw, type(law).__name__)


def _check_drawable(name: str, law: Any) -> None:
    kind = type(law).__name__
    check(
        kind != "Delta",
        f"the prior of {name} must have a density, but Delta is one value; write it into the "
        "likelihood",
    )
    try:
        jax.eval_shape(law.sample, jr.key(0))
    except NotImplementedError as error:
        raise InputError(
            f"the prior of {name} must be a distribution to draw from, but {kind} is not; declare "
            "the support alone, such as inv.real() or inv.positive()"
        ) from error


def _numpyro_support(name: str, law: Any, shape: Shape) -> AbstractSupport:
    if type(law.support).__name__ == "_Circular":
        return Angle(shape)
    # a distribution of NumPyro's exists, so NumPyro was imported
    try:
        transform = sys.modules["numpyro.distributions"].biject_to(law.support)
    except NotImplementedError as error:
        raise InputError(
            f"the prior of {name} must have a support that NumPyro maps to the real line, but "
            f"that of {type(law).__name__} has no such map; declare other parameters, such as "
            "angles"
        ) from error
    return NumpyroSupport(transform=transform, shape=shape)


class Quantiles(AbstractSupport):
    """`F⁻¹(Φ(u))` with a quantile function of the host.

    Its `log |det|` is against the distribution F itself: with an even prior on values so measured,
    u is standard normal.
    """

    quantile: Callable[[np.ndarray], np.ndarray] = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        even, log_det = UnitCube(self.shape).constrain(u)
        return host(self.quantile, even), log_det

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        raise InputError("a prior given by its quantile function alone maps no value back to u")

    def start(self, key: Key[Array, ""]) -> Flat:
        return jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return jnp.sum(norm.logpdf(u))


def host(function: Callable[[np.ndarray], np.ndarray], x: Array) -> Array:
    """A NumPy function of each element, called on the host."""

    def call(rows: Array | np.ndarray) -> np.ndarray:
        return np.asarray(function(np.asarray(rows, float)), x.dtype).reshape(np.shape(rows))

    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(call, like, x, vmap_method="expand_dims")


def _from_scipy(law: Any) -> Parameter:
    shapes, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
    known: dict[str, Callable[[], Parameter]] = {
        "norm": lambda: priors.Normal(loc, scale),
        "uniform": lambda: priors.Uniform(loc, np.add(loc, scale)),
        "cauchy": lambda: priors.Cauchy(loc, scale),
        "t": lambda: priors.StudentT(shapes[0], loc, scale),
    }
    half = {
        "halfnorm": lambda: priors.HalfNormal(scale),
        "expon": lambda: priors.Exponential(1 / np.asarray(scale)),
        "gamma": lambda: priors.Gamma(shapes[0], 1 / np.asarray(scale)),
        "halfcauchy": lambda: priors.HalfCauchy(scale),
        "lognorm": lambda: priors.LogNormal(np.log(scale), shapes[0]),
    }
    name = law.dist.name
    if name in known:
        return known[name]()
    if name in half and np.all(np.asarray(loc) == 0):
        return half[name]()
    if name == "beta" and np.all(np.asarray(loc) == 0) and np.all(np.asarray(scale) == 1):
        return priors.Beta(shapes[0], shapes[1])
    shape = np.broadcast_shapes(*map(np.shape, (*shapes, loc, scale)))
    even = Quantiles(quantile=law.ppf, shape=shape)
    return Parameter(even, (), lambda x: jnp.zeros((), x.dtype), None, f"scipy.stats.{name}")
