"""Supports: how a constrained value is made of unconstrained numbers, `value = T(u)`.

A density p of the value is sampled as the density `p(T(u)) |det DT(u)|` of u in R^size. Every
support says T, its inverse, `log |det DT|`, and a distribution of u to start from where no prior is
given.

An angle is the direction of a point of the plane: `T(a, b) = atan2(b, a)`. The radius
`r = |(a, b)|` has a fixed distribution, `r² ~ Gamma(SHARP + 1, SHARP)`, independent of the angle,
so that the density of (a, b) is proper and has no seam: what lies on both sides of ±π is one.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection, Exp, Sigmoid
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Key, Scalar

WIDE = 3.0  # sd of u to start from; a guess, as for densities without declared parameters
GAPS = 1.0  # sd of the logarithms of gaps between ordered values; a guess
SHARP = 4.0  # of an angle's radius, whose sd is about 1/(2 √SHARP); a guess

Shape = tuple[int, ...]
Flat = Float[Array, " size"]
Value = Float[Array, "..."]


class AbstractSupport(eqx.Module):
    """A map from R^size onto the values of one parameter."""

    shape: eqx.AbstractVar[Shape]

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many unconstrained numbers make one value."""

    @abc.abstractmethod
    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        """Return `T(u)` and `log |det DT(u)|`."""

    @abc.abstractmethod
    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        """Return a u with `T(u) = value`; the key is for supports that have many of them."""

    @abc.abstractmethod
    def start(self, key: Key[Array, ""]) -> Flat:
        """Draw u from the distribution to start from."""

    @abc.abstractmethod
    def start_log_prob(self, u: Flat) -> Scalar:
        """Return the log density of the distribution to start from."""

    @property
    def period(self) -> tuple[float, float] | None:
        """The ends of a circle, which are one place; None for values that lie on no circle."""
        return None


def _normal_log_prob(u: Array, sd: float | Array) -> Scalar:
    return jnp.sum(norm.logpdf(u, 0.0, sd))


def _between(value: Value, low: Value | float, high: Value | float) -> Value:
    """The value, or the nearest one between the bounds if rounding has moved it onto a bound.

    There a log density such as that of Beta(½, ½) is infinite.
    """
    tiny = jnp.finfo(value.dtype).tiny  # numbers nearer to zero are taken for zero
    low, high = (jnp.asarray(end, value.dtype) for end in (low, high))
    least = jnp.maximum(jnp.nextafter(low, high), low + tiny)
    return jnp.clip(value, least, jnp.minimum(jnp.nextafter(high, low), high - tiny))


class Line(AbstractSupport):
    """Values with a bijection of their own shape, such as FlowJAX's; each is started from N(0, 3²).

    The bijection of a real value is None.
    """

    shape: Shape = eqx.field(static=True)
    bijection: AbstractBijection | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        if self.bijection is None:
            return u.reshape(self.shape), jnp.zeros((), u.dtype)
        return self.bijection.transform_and_log_det(u.reshape(self.shape))

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        if self.bijection is None:
            return jnp.ravel(value)
        return jnp.ravel(self.bijection.inverse(value))

    def start(self, key: Key[Array, ""]) -> Flat:
        return WIDE * jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return _normal_log_prob(u, WIDE)


class Half(AbstractSupport):
    """Values on one side of a bound, `bound ± exp(u)`, which is never reached."""

    shape: Shape = eqx.field(static=True)
    bound: float = eqx.field(static=True, default=0.0)
    sign: float = eqx.field(static=True, default=1.0)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        value, log_det = Exp(self.shape).transform_and_log_det(u.reshape(self.shape))
        low, high = sorted([self.bound, self.sign * math.inf])
        return _between(self.bound + self.sign * value, low, high), log_det

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        return jnp.ravel(Exp(self.shape).inverse(self.sign * (value - self.bound)))

    def start(self, key: Key[Array, ""]) -> Flat:
        return WIDE * jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return _normal_log_prob(u, WIDE)


class Interval(AbstractSupport):
    """Values between two bounds, `low + (high - low) / (1 + exp(-u))`, which are never reached.

    They are started evenly between the bounds.
    """

    low: Value
    high: Value
    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        share, log_det = Sigmoid(self.shape).transform_and_log_det(u.reshape(self.shape))
        # from the nearer end, so that values stay inside whatever the rounding
        value = jnp.where(
            share < 0.5,
            self.low + self._width * share,
            self.high - self._width * jax.nn.sigmoid(-u.reshape(self.shape)),
        )
        value = _between(value, self.low, self.high)
        return value, log_det + jnp.sum(jnp.log(self._width))

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        return jnp.ravel(jnp.log(value - self.low) - jnp.log(self.high - value))

    def start(self, key: Key[Array, ""]) -> Flat:
        return jr.logistic(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return jnp.sum(-jax.nn.softplus(u) - jax.nn.softplus(-u))

    @property
    def _width(self) -> Value:
        return jnp.broadcast_to(self.high - self.low, self.shape)


class UnitCube(AbstractSupport):
    """Values between 0 and 1 as `Φ(u)`, so that even values are standard normal u."""

    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        value = _between(norm.cdf(u), 0.0, 1.0)
        return value.reshape(self.shape), jnp.sum(norm.logpdf(u))

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        return ndtri(jnp.ravel(value))

    def start(self, key: Key[Array, ""]) -> Flat:
        return jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return _normal_log_prob(u, 1.0)


class Angle(AbstractSupport):
    """Values on a circle from `low` to `high`, which are one place: directions in the plane."""

    shape: Shape = eqx.field(static=True)
    low: float = eqx.field(static=True, default=-math.pi)
    high: float = eqx.field(static=True, default=math.pi)

    @property
    def size(self) -> int:
        return 2 * math.prod(self.shape)

    @property
    def period(self) -> tuple[float, float]:
        return self.low, self.high

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        a, b = u.reshape(2, *self.shape)
        square = a**2 + b**2
        safe = jnp.where(square > 0, square, 1.0)  # the centre has no direction: density 0
        radial = SHARP * (jnp.log(safe) - square)
        constant = math.log(2) + (SHARP + 1) * math.log(SHARP) - math.lgamma(SHARP + 1)
        scale = (self.high - self.low) / (2 * math.pi)
        turn = jnp.arctan2(jnp.where(square > 0, b, 0.0), jnp.where(square > 0, a, 1.0))
        log_det = jnp.where(square > 0, radial + constant + math.log(scale), -jnp.inf)
        return 0.5 * (self.low + self.high) + turn * scale, jnp.sum(log_det)

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        turn = (value - 0.5 * (self.low + self.high)) * (2 * math.pi / (self.high - self.low))
        radius = jnp.sqrt(jr.gamma(key, SHARP + 1, self.shape) / SHARP)
        return jnp.ravel(jnp.stack([radius * jnp.cos(turn), radius * jnp.sin(turn)]))

    def start(self, key: Key[Array, ""]) -> Flat:
        key_value, key_radius = jr.split(key)
        value = jr.uniform(key_value, self.shape, minval=self.low, maxval=self.high)
        return self.unconstrain(value, key_radius)

    def start_log_prob(self, u: Flat) -> Scalar:
        return self.constrain(u)[1] - math.prod(self.shape) * math.log(self.high - self.low)


class Simplex(AbstractSupport):
    """Vectors of `count` positive numbers with sum 1, by breaking a stick; started evenly."""

    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.shape[:-1]) * (self.shape[-1] - 1)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        parts = u.reshape(*self.shape[:-1], self.shape[-1] - 1) - self._shift
        log_share, log_rest = -jax.nn.softplus(-parts), -jax.nn.softplus(parts)
        left = jnp.cumsum(log_rest, axis=-1)  # log of what is left of the stick after each break
        before = left - log_rest
        value = jnp.concatenate([jnp.exp(before + log_share), jnp.exp(left[..., -1:])], axis=-1)
        return _between(value, 0.0, 1.0), jnp.sum(before + log_share + log_rest)

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        after = jnp.cumsum(value[..., ::-1], axis=-1)[..., ::-1][..., 1:]
        return jnp.ravel(jnp.log(value[..., :-1]) - jnp.log(after) + self._shift)

    def start(self, key: Key[Array, ""]) -> Flat:
        value = jr.dirichlet(key, jnp.ones(self.shape[-1]), self.shape[:-1])
        return self.unconstrain(value, key)

    def start_log_prob(self, u: Flat) -> Scalar:
        constant = math.prod(self.shape[:-1]) * math.lgamma(self.shape[-1])
        return self.constrain(u)[1] + constant

    @property
    def _shift(self) -> Array:
        """Even values at u = 0."""
        parts = jnp.log(jnp.arange(self.shape[-1] - 1, 0, -1, dtype=float))
        return jnp.broadcast_to(parts, (*self.shape[:-1], self.shape[-1] - 1))


class Ordered(AbstractSupport):
    """Vectors of `count` rising numbers: the first, and the logarithms of the gaps."""

    shape: Shape = eqx.field(static=True)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def constrain(self, u: Flat) -> tuple[Value, Scalar]:
        rows = u.reshape(self.shape)
        steps = jnp.concatenate([rows[..., :1], jnp.exp(rows[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1), jnp.sum(rows[..., 1:])

    def unconstrain(self, value: Value, key: Key[Array, ""]) -> Flat:
        del key
        gaps = jnp.log(jnp.diff(value, axis=-1))
        return jnp.ravel(jnp.concatenate([value[..., :1], gaps], axis=-1))

    def start(self, key: Key[Array, ""]) -> Flat:
        return self._sds * jr.normal(key, (self.size,))

    def start_log_prob(self, u: Flat) -> Scalar:
        return _normal_log_prob(u, self._sds)

    @property
    def _sds(self) -> Array:
        row = jnp.full(self.shape[-1], GAPS).at[0].set(WIDE)
        return jnp.ravel(jnp.broadcast_to(row, self.shape))
