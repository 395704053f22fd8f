"""The universality theorem, executable: an involution that makes any continuous transition.

For a continuous T(φ, u) with φ in Rⁿ and u one normal number, and ε > 0, the proof builds

    I = g⁻¹ ∘ h⁻¹ ∘ I_P ∘ h ∘ g      on R^(2n+6) = φ ⌢ π,  π ~ N(0, I) of n + 6 numbers

g shrinks π by ε and adds 1 to the last coordinate of each half. h is two additive couplings: it
shifts the second half by R of the first, then the first by S of the second. With the flag
q = x_(n+3) - x_(n+2) and the ramp r(q) that goes from 0 at -1/2 to 1 at 1/2,

    R(x) = r(q) (T(x_(1..n), x_(n+1)/ε) - x_(1..n)) ⌢ 0³        S(x) = r(q) x_(1..n) ⌢ 0³.

I_P exchanges the two coordinates of each flag: on the way out both flags are near 1 and R, S act;
on the way back they are near -1 and do nothing. On the event A, where no flag is misread, this
gives exactly `φ' = T(φ, π₁) + ε π_(4..n+3)`, with determinant 1 throughout.

The theorem's networks take sigmoid networks of one hidden layer in place of R and S.

This is a theorem on the law of the proposal. As an MCMC move the construction is useless: on A,

    log Y(π')/Y(π) = -2/ε² - |T - φ|²/2ε² + O(1/ε),

so almost nothing is accepted as ε → 0 (`log_auxiliary_ratio`).
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax import bijections as fb
from jax.core import Tracer
from jaxtyping import Array, Bool, Float
from numpy.random import Generator

from involutive.bijections.couplings import AdditiveCoupling
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key, generator
from involutive.involutions.blocks import Conjugate, PermutationBlock
from involutive.storage.codec import register
from involutive.targets.target import Target

Vector = Float[Array, " size"]
Auxiliary = Float[Array, " aux"]
Scalar = Float[Array, ""]
Shift = Callable[[Vector], Vector]
Number = float | Scalar


class Transition(NamedTuple):
    """A continuous `T(φ, u)` from Rⁿ × R into the ball of radius `radius`."""

    name: str
    dim: int
    radius: float
    apply: Callable[[Vector, Scalar], Vector]


@register
class ExactR(eqx.Module):
    """`R(x) = r(q) (T(φ, x_(n+1)/ε) - φ) ⌢ 0³`."""

    transition: Transition = eqx.field(static=True)
    epsilon: Number

    def __call__(self, x: Vector) -> Vector:
        n = self.transition.dim
        phi, u = x[:n], x[n] / self.epsilon
        step = self.transition.apply(phi, u) - phi
        return jnp.concatenate([ramp(x) * step, jnp.zeros(3, x.dtype)])


@register
class ExactS(eqx.Module):
    """`S(x) = r(q) x_(1..n) ⌢ 0³`."""

    dim: int = eqx.field(static=True)

    def __call__(self, x: Vector) -> Vector:
        return jnp.concatenate([ramp(x) * x[: self.dim], jnp.zeros(3, x.dtype)])


def ramp(x: Vector) -> Scalar:
    """`min(1, max(0, q + 1/2))` for the flag `q = x_(n+3) - x_(n+2)`, the last two coordinates."""
    return jnp.clip(x[-1] - x[-2] + 0.5, 0.0, 1.0)


def shrink(dim: int, epsilon: Number) -> fb.Affine:
    """g: multiply π by ε and add 1 to the last coordinate of each half."""
    if not isinstance(epsilon, Tracer):
        check(epsilon > 0, f"epsilon must be positive, got {epsilon}")
    scale = jnp.concatenate([jnp.ones(dim), jnp.full(dim + 6, epsilon)])
    flag = np.concatenate([np.zeros(dim + 2), [1.0]])
    return fb.Affine(jnp.asarray(np.tile(flag, 2)), scale)


def flip_flags(dim: int) -> PermutationBlock:
    """σ: exchange the two coordinates of each flag."""
    order = np.arange(2 * dim + 6)
    for last in (dim + 2, 2 * dim + 5):
        order[[last - 1, last]] = last, last - 1
    return PermutationBlock(order)


def involution(dim: int, epsilon: Number, r: Shift, s: Shift) -> Conjugate:
    """`g⁻¹ ∘ h⁻¹ ∘ I_P ∘ h ∘ g` for the shifts R and S, exact or networks."""
    size, half = 2 * check_count("dim", dim) + 6, dim + 3
    out = AdditiveCoupling(r, size, half)
    back = AdditiveCoupling(s, size, half, flip=True)
    return Conjugate(fb.Chain([shrink(dim, epsilon), out, back]), flip_flags(dim))


def exact_involution(transition: Transition, epsilon: Number) -> Conjugate:
    """The involution of the proof with R and S themselves."""
    r = ExactR(transition, epsilon)
    return involution(transition.dim, epsilon, r, ExactS(transition.dim))


def event(pi: Auxiliary, epsilon: Number) -> Bool[Array, ""]:
    """A: `π₃ - π₂ > -1/2ε`, `π_(n+6) - π_(n+5) > -1/2ε` and `|π| < 1/ε`."""
    bound = 0.5 / epsilon
    flags = (pi[2] - pi[1] > -bound) & (pi[-1] - pi[-2] > -bound)
    return flags & (jnp.sum(pi**2) < 1.0 / epsilon**2)


def formula(transition: Transition, epsilon: Number, phi: Vector, pi: Auxiliary) -> Vector:
    """The lemma's value of the involution's first n coordinates on A: `T(φ, π₁) + ε π_(4..n+3)`."""
    return transition.apply(phi, pi[0]) + epsilon * pi[3 : 3 + transition.dim]


def log_auxiliary_ratio(
    transition: Transition, epsilon: Number, phi: Vector, pi: Auxiliary
) -> Scalar:
    """`log Y(π')/Y(π)` of the exact involution on A, in closed form.

    There π' has `(T - φ)/ε + ν` in place of ν = π_(4..n+3), and each flag's pair (a, b) becomes
    `(b + 1/ε, a - 1/ε)`; all else is as in π. Both terms go to -∞ as ε → 0.
    """
    n = transition.dim
    nu, step = pi[3 : 3 + n], transition.apply(phi, pi[0]) - phi
    moved = jnp.sum((step / epsilon + nu) ** 2) - jnp.sum(nu**2)
    flags = (pi[2] - pi[1]) + (pi[-1] - pi[-2])
    return -0.5 * moved - 2.0 / epsilon**2 - flags / epsilon


# ── Networks in place of R and S ────────────────────────────────────────────────────────────────


@register
class SigmoidNetwork(eqx.Module):
    """`x ↦ C sigmoid(W x + b) + d`: one hidden layer, as in Hornik's theorem."""

    hidden: Float[Array, "width size"]
    bias: Float[Array, " width"]
    outer: Float[Array, "size width"]
    offset: Float[Array, " size"]

    def __call__(self, x: Vector) -> Vector:
        return self.outer @ jax.nn.sigmoid(self.hidden @ x + self.bias) + self.offset


def fit_network(
    points: Float[Array, "n size"], values: Float[Array, "n size"], width: int, rng: Generator
) -> SigmoidNetwork:
    """Fit a network of `width` sigmoids to the values of a function at points.

    Inner weights are drawn at random, each unit bending near one of the points along a random
    subset of the coordinates scaled by the points' spread; the outer layer solves least squares.
    """
    shape = width, points.shape[1]
    slope = rng.normal(size=shape) * (rng.random(shape) < 0.6)
    seen = np.asarray(points)
    hidden = np.exp(rng.uniform(-1.0, 2.0, (width, 1))) * slope / (seen.std(axis=0) + 1e-6)
    centre = seen[rng.integers(points.shape[0], size=width)]
    bias = -np.sum(hidden * centre, axis=1)
    dtype = points.dtype
    return _least_squares(jnp.asarray(hidden, dtype), jnp.asarray(bias, dtype), points, values)


@jax.jit
def _least_squares(hidden: Array, bias: Array, points: Array, values: Array) -> SigmoidNetwork:
    features = jax.nn.sigmoid(points @ hidden.T + bias[None, :])
    features = jnp.concatenate([features, jnp.ones((points.shape[0], 1), points.dtype)], axis=1)
    gram = features.T @ features
    # a ridge near the rounding error keeps the weights, and with them f∘f = id, accurate
    ridge = 1e-10 * jnp.trace(gram) * jnp.eye(gram.shape[0], dtype=gram.dtype) / gram.shape[0]
    factor = jax.scipy.linalg.cho_factor(gram + ridge)
    weights = jax.scipy.linalg.cho_solve(factor, features.T @ values)
    return SigmoidNetwork(hidden, bias, weights[:-1].T, weights[-1])


@eqx.filter_jit
def visited(
    transition: Transition, epsilon: Number, phi: Float[Array, "n dim"], pi: Float[Array, "n aux"]
) -> tuple[Float[Array, "m size"], Float[Array, "m size"]]:
    """Points at which the exact involution asks for R and for S, out and back, from (φ, π)."""
    f = exact_involution(transition, epsilon)
    half = transition.dim + 3
    z = jnp.concatenate([phi, pi], axis=1)

    def trace(z: Vector) -> tuple[Array, Array, Array, Array]:
        scale, out, back = f.g.bijections  # type: ignore[attr-defined]
        scaled = scale.transform(z)
        shifted = out.transform(scaled)
        turned, _ = f.inner(back.transform(shifted))
        returned = back.inverse(turned)
        return scaled[:half], returned[:half], shifted[half:], turned[half:]

    r_out, r_back, s_out, s_back = jax.vmap(trace)(z)
    return jnp.concatenate([r_out, r_back]), jnp.concatenate([s_out, s_back])


def network_involution(
    transition: Transition, epsilon: Number, width: int, key: KeyLike, points: int = 8192
) -> Conjugate:
    """The theorem's network: sigmoid networks fitted to R and S where the involution visits them.

    φ is drawn uniformly from a ball a tenth larger than Ω and π from a normal a tenth wider than
    its law: the fit covers what sampling will meet, and not the whole of Ω⁺⁺.
    """
    n, width = transition.dim, check_count("width", width)
    rng = generator(as_key(key))
    phi = in_ball(rng, points, n, 1.1 * transition.radius)
    pi = 1.1 * rng.normal(size=(points, n + 6))
    at_r, at_s = visited(transition, jnp.asarray(epsilon), jnp.asarray(phi), jnp.asarray(pi))
    r = fit_network(at_r, jax.vmap(ExactR(transition, epsilon))(at_r), width, rng)
    s = fit_network(at_s, jax.vmap(ExactS(n))(at_s), width, rng)
    return involution(n, epsilon, r, s)


@eqx.filter_jit
def approximation_error(
    transition: Transition, f: Conjugate, epsilon: Number, at_r: Array, at_s: Array
) -> Scalar:
    """The larger of `max |R - R̂|₁` and `max |S - Ŝ|₁` over points, R̂ and Ŝ the networks in f.

    The proof's δ_m is that maximum over the ball Ω⁺⁺ of radius 14r + 21.
    """
    _, out, back = f.g.bijections  # type: ignore[attr-defined]

    def largest(exact: Shift, network: Shift, points: Array) -> Scalar:
        return jnp.max(jax.vmap(lambda x: jnp.sum(jnp.abs(exact(x) - network(x))))(points))

    r, s = ExactR(transition, epsilon), ExactS(transition.dim)
    return jnp.maximum(largest(r, out.net, at_r), largest(s, back.net, at_s))


def in_ball(rng: Generator, count: int, dim: int, radius: float) -> np.ndarray:
    """Points drawn uniformly from the ball of a radius around zero."""
    direction = rng.normal(size=(count, dim))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return radius * rng.random((count, 1)) ** (1 / dim) * direction


# ── Three transitions ───────────────────────────────────────────────────────────────────────────


def _turn(phi: Vector, u: Scalar) -> Vector:
    inside = phi / jnp.maximum(1.0, jnp.sqrt(jnp.sum(phi**2) + 1e-300))
    angle = jnp.pi / 3 + 0.8 * jnp.tanh(u)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * inside[0] - sin * inside[1], sin * inside[0] + cos * inside[1]])


def _two_humps(phi: Vector, u: Scalar) -> Vector:
    return jnp.reshape(jnp.tanh(4 * u) + 0.3 * jnp.tanh(u), (1,))


def _bent(phi: Vector, u: Scalar) -> Vector:
    spread = 0.1 + 0.4 * jax.nn.sigmoid(4 * phi[0])
    return jnp.reshape(0.5 * jnp.sin(3 * phi[0]) + spread * jnp.tanh(u), (1,))


ROTATION = Transition("rotation with noise", 2, 1.0, _turn)
BIMODAL = Transition("two modes, whatever φ", 1, 1.3, _two_humps)
DEPENDENT = Transition("place and spread by φ", 1, 1.0, _bent)
TRANSITIONS = (ROTATION, BIMODAL, DEPENDENT)


def law_of_bimodal() -> Target:
    """The distribution of `T(φ, u) = tanh 4u + 0.3 tanh u` as a target: T proposes p itself."""

    def value(u: Array) -> Array:
        return BIMODAL.apply(jnp.zeros(1, u.dtype), u)[0]

    def log_density(x: Array) -> Array:
        def halve(_: object, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bounds
            middle = 0.5 * (low + high)
            short = value(middle) < x[0]
            return jnp.where(short, middle, low), jnp.where(short, high, middle)

        ends = (jnp.full((), -12.0, x.dtype), jnp.full((), 12.0, x.dtype))
        u = jax.lax.fori_loop(0, 60, halve, ends)[0]
        inside = jnp.abs(x[0]) < BIMODAL.radius
        return jnp.where(inside, -0.5 * u**2 - jnp.log(jax.grad(value)(u)), -jnp.inf)

    return Target(log_density, 1, name="law of T")
