"""Densities in which something is easily missed, with exact draws: random constants from a seed.

All but the funnel are mixtures of bent normals: component k is the law of

    x = R B_k(m_k + s_k z),   z ~ N(0, I),   B_k(u) = u + c_k u_0²,  c_k0 = 0,

with R a rotation. A bend keeps volumes, so the density is that of the normal at `B_k⁻¹(Rᵀ x)`.
Modes are the regions where one component has the largest share of the density.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from involutive.bench.entry import EXACT_DRAWS
from involutive.bench.suites import known_reference, make
from involutive.bench.targets import Reference, summary, with_square
from involutive.targets.target import Modes, Target, Vector

FAR_WEIGHT = 0.3  # of a mode that is easily missed; the issue of the 100-D mixture had the same


@dataclass(frozen=True)
class Case:
    """A density to learn, and the truth about it.

    Attributes:
        target: the density alone: neither exact draws nor modes reach the sampler.
        judged: the same with its modes, for the judge.
        known: quantiles and moments of exact draws.
    """

    target: Target
    judged: Target
    known: Reference


class Bent(eqx.Module):
    """A mixture of bent normals; a module, so that densities of one shape compile once.

    Attributes:
        weights: `(k,)`, of the components.
        means: `(k, dim)`, before the bend.
        sds: `(k, dim)`.
        bends: `(k, dim)`, the curvature c of every coordinate; that of the first is zero.
        rotation: `(dim, dim)`.
    """

    weights: Array = eqx.field(converter=jnp.asarray)
    means: Array = eqx.field(converter=jnp.asarray)
    sds: Array = eqx.field(converter=jnp.asarray)
    bends: Array = eqx.field(converter=jnp.asarray)
    rotation: Array = eqx.field(converter=jnp.asarray)

    def parts(self, x: Vector) -> Float[Array, " k"]:
        """`log w_k p_k(x)` for every component."""
        bent = self.rotation.T @ x
        z = (bent[None, :] - self.bends * bent[0] ** 2 - self.means) / self.sds
        norm = jnp.sum(jnp.log(self.sds), axis=1) + 0.5 * x.size * jnp.log(2 * jnp.pi)
        return jnp.log(self.weights) - 0.5 * jnp.sum(z**2, axis=1) - norm

    def __call__(self, x: Vector) -> Float[Array, ""]:
        """The logarithm of the density, normalised."""
        return logsumexp(self.parts(x))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Exact draws."""
        weights, means, sds, bends, rotation = (
            np.asarray(part, np.float64)
            for part in (self.weights, self.means, self.sds, self.bends, self.rotation)
        )
        k = rng.choice(len(weights), size=count, p=weights / weights.sum())
        u = means[k] + sds[k] * rng.normal(size=(count, means.shape[1]))
        return (u + bends[k] * u[:, :1] ** 2) @ rotation.T


def _case(name: str, mixture: Bent, rng: np.random.Generator) -> Case:
    draws, dim = mixture.draw(rng, EXACT_DRAWS), mixture.means.shape[1]
    known = summary(with_square(draws), EXACT_DRAWS)

    def label(x: Vector) -> Int[Array, ""]:
        return jnp.argmax(mixture.parts(x))

    labels = np.asarray(jax.jit(jax.vmap(label))(jnp.asarray(draws)))
    weights = np.bincount(labels, minlength=len(mixture.weights)) / EXACT_DRAWS
    modes = Modes(label, tuple(weights.tolist()))
    return Case(Target(mixture, dim, name=name), Target(mixture, dim, modes=modes), known)


def _straight(weights: list[float], means: np.ndarray, sds: np.ndarray) -> Bent:
    """Without a bend or a rotation."""
    return Bent(np.array(weights), means, sds, np.zeros_like(means), np.eye(means.shape[1]))


def _direction(dim: int, rng: np.random.Generator) -> np.ndarray:
    step = rng.normal(size=dim)
    return step / np.linalg.norm(step)


def _rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


def _far(rng: np.random.Generator) -> Bent:
    """Two modes, 10 to 30 apart, of similar width."""
    dim = int(rng.integers(2, 9))
    means = np.stack([np.zeros(dim), rng.uniform(10, 30) * _direction(dim, rng)])
    sds = np.repeat([[1.0], [rng.uniform(0.5, 1.5)]], dim, axis=1)
    return _straight([1 - FAR_WEIGHT, FAR_WEIGHT], means + rng.normal(size=dim), sds)


def _shadowed(dim: int) -> Callable[[np.random.Generator], Bent]:
    def draw(rng: np.random.Generator) -> Bent:
        """A wide and a narrow mode on either side of X's centre, where the narrow one is denser.

        From draws of X = N(0, 3² I) every climb ends in the wide one; the narrow one is reached
        from starts much closer to the centre.
        """
        narrow, root = rng.uniform(0.3, 0.6), np.sqrt(dim)
        most = narrow * np.sqrt(2 * np.log(1 / narrow))  # c at which it is as dense as the wide one
        places = [rng.uniform(0.3, 0.9), rng.uniform(0.3, 0.9) * most]
        means = np.stack([c * root * _direction(dim, rng) for c in places])
        sds = np.repeat([[1.0], [narrow]], dim, axis=1)
        return _straight([1 - FAR_WEIGHT, FAR_WEIGHT], means, sds)

    return draw


def _hidden(dim: int) -> Callable[[np.random.Generator], Bent]:
    def draw(rng: np.random.Generator) -> Bent:
        """A narrow mode in a direction of its own: no start near X, at no width, reaches it.

        Only a share of about `sin(θ)^dim` of all directions does, with θ about 40 degrees.
        """
        narrow, apart = rng.uniform(0.4, 0.7), rng.uniform(0.9, 1.6) * np.sqrt(dim)
        means = np.stack([np.zeros(dim), apart * _direction(dim, rng)])
        sds = np.repeat([[1.0], [narrow]], dim, axis=1)
        return _straight([1 - FAR_WEIGHT, FAR_WEIGHT], means, sds)

    return draw


def _inside(rng: np.random.Generator) -> Bent:
    """Half the mass in a component of a tenth of the bulk's width, somewhere inside it."""
    width = np.exp(rng.uniform(np.log(1.0), np.log(4.0)))
    means = np.stack([np.zeros(4), width * rng.normal(size=4)])
    return _straight([0.5, 0.5], means, np.repeat([[width], [0.1 * width]], 4, axis=1))


def _arms(rng: np.random.Generator) -> Bent:
    """Two to four thin arms in 5-D that leave the origin in parabolas of their own."""
    count, dim = int(rng.integers(2, 5)), 5
    sds = np.full((count, dim), rng.uniform(0.05, 0.15))
    sds[:, 0] = rng.uniform(1.0, 2.5)
    axes, bends = rng.permutation(np.arange(1, dim))[:count], np.zeros((count, dim))
    signs = rng.choice([-1.0, 1.0], size=count)
    bends[np.arange(count), axes] = signs * rng.uniform(0.3, 1.0, size=count)
    weights = rng.dirichlet(np.full(count, 8.0))
    return Bent(weights, np.zeros((count, dim)), sds, bends, _rotation(dim, rng))


def _saddle(rng: np.random.Generator) -> Bent:
    """Two modes of one bent valley: the straight line between them leaves it."""
    dim = int(rng.integers(2, 7))
    half = rng.uniform(3.0, 6.0)
    means = np.zeros((2, dim))
    means[:, 0] = -half, half
    sds = np.full((2, dim), rng.uniform(0.2, 0.6))
    sds[:, 0] = 1.0, rng.uniform(0.4, 1.0)
    bends = np.zeros((2, dim))
    bends[:, 1] = rng.uniform(0.1, 0.3)
    weights = np.array([1 - FAR_WEIGHT, FAR_WEIGHT])
    return Bent(weights, means, sds, bends, _rotation(dim, rng))


class Funnel(eqx.Module):
    """`v ~ N(0, spread²)`, the others `N(0, exp(v))`: the neck is where v is low."""

    spread: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, x: Vector) -> Float[Array, ""]:
        """The logarithm of the density, up to a constant."""
        v, rest = x[0], x[1:]
        inner = 0.5 * jnp.sum(rest**2) * jnp.exp(-v) + 0.5 * rest.size * v
        return -0.5 * (v / self.spread) ** 2 - inner


def _neck(rng: np.random.Generator) -> Case:
    dim, spread = int(rng.integers(5, 13)), rng.uniform(2.0, 3.5)
    v = spread * rng.normal(size=EXACT_DRAWS)
    rest = np.exp(0.5 * v)[:, None] * rng.normal(size=(EXACT_DRAWS, dim - 1))
    draws = with_square(np.concatenate([v[:, None], rest], axis=1))
    target = Target(Funnel(spread), dim, name="neck")
    return Case(target, target, summary(draws, EXACT_DRAWS, moments=False))


MIXTURES: dict[str, Callable[[np.random.Generator], Bent]] = {
    "far": _far,
    "shadow20": _shadowed(20),
    "shadow50": _shadowed(50),
    "shadow100": _shadowed(100),
    "inside": _inside,
    "arms": _arms,
    "saddle": _saddle,
    "hidden10": _hidden(10),
    "hidden20": _hidden(20),
    "hidden50": _hidden(50),
}
KINDS = ("far", "shadow20", "shadow50", "shadow100", "inside", "arms", "saddle", "neck")
HIDDEN = ("hidden10", "hidden20", "hidden50")  # beyond what any search from X can be asked to find


def case(kind: str, seed: int) -> Case:
    """The density of a kind with the constants of a seed; or a target of the recipe study."""
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    if kind == "neck":
        return _neck(rng)
    if kind in MIXTURES:
        return _case(f"{kind} {seed}", MIXTURES[kind](rng), rng)
    full = make(kind)
    return Case(Target(full.log_density, full.dim, name=kind), full, known_reference(kind))
