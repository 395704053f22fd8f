"""A Gaussian mixture with a heavy-tailed cover, whose factors are given and not computed.

    q(x) = (1 - s) Σ_k w_k N(x; μ_k, R_k R_kᵀ) + s t_ν(x; m, diag(c)²)

R_k is lower triangular and A_k = R_k⁻¹ stands beside it, so that neither a draw nor a density
factorises anything: thousands of such mixtures can be used side by side in one program. The cover
bounds p/q in practice: m and c are the mean and a multiple of the sds of the whole mixture.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Key

from involutive.auxiliary.mixtures import GaussianMixture
from involutive.core.errors import check

SHARE = 0.05  # of the cover; a guess: an effective share of 0.95 is the most that remains
WIDER = 1.5  # times the sds of the mixture; a guess
FREEDOM = 4.0  # degrees of freedom of the cover; a guess


class DefensiveMixture(AbstractDistribution):
    """A Gaussian mixture with a share of a wide Student-t.

    Args:
        logits: log weights `(k,)` of the Gaussian components, up to a constant.
        means: `(k, dim)`.
        factors: `(k, dim, dim)`, lower triangular A_k with positive diagonal; the precision of a
            component is `A_kᵀ A_k`.
        share: the weight of the cover, from 0 to below 1; 0 leaves it out.

    Raises:
        InputError: if the share is out of range or the shapes do not fit together.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr
        >>> from involutive.auxiliary.defensive import DefensiveMixture
        >>> law = DefensiveMixture(jnp.zeros(1), jnp.zeros((1, 2)), jnp.eye(2)[None])
        >>> law.sample(jr.key(0)).shape
        (2,)
    """

    logits: Float[Array, " k"]
    means: Float[Array, "k dim"]
    factors: Float[Array, "k dim dim"]
    roots: Float[Array, "k dim dim"]
    centre: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    share: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(
        self,
        logits: Float[Array, " k"],
        means: Float[Array, "k dim"],
        factors: Float[Array, "k dim dim"],
        share: float = SHARE,
    ):
        count, dim = means.shape
        check(
            logits.shape == (count,) and factors.shape == (count, dim, dim),
            f"logits and factors must be of {count} components of {dim} coordinates, got shapes "
            f"{logits.shape} and {factors.shape}",
        )
        check(0 <= share < 1, f"share must lie from 0 to below 1, got {share}")
        self.logits, self.means, self.factors = jax.nn.log_softmax(logits), means, factors
        self.roots = triangular_inverse(factors)
        self.centre, deviation = moments(self.logits, means, self.roots)
        self.scale = WIDER * deviation
        self.share, self.shape, self.cond_shape = share, (dim,), None

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        white = jnp.einsum("kij,kj->ki", self.factors, x[None] - self.means)
        levels = self.logits + jnp.sum(jnp.log(_diagonals(self.factors)), axis=1)
        inside = logsumexp(levels - 0.5 * jnp.sum(white**2, axis=1))
        inside = inside - 0.5 * self.shape[0] * np.log(2 * np.pi)
        if self.share == 0:
            return inside
        cover = np.log(self.share) + self._log_cover(x)
        return jnp.logaddexp(np.log1p(-self.share) + inside, cover)

    def _log_cover(self, x: Array) -> Array:
        dim, half = self.shape[0], 0.5 * (FREEDOM + self.shape[0])
        squares = jnp.sum(((x - self.centre) / self.scale) ** 2)
        constant = gammaln(half) - gammaln(FREEDOM / 2) - 0.5 * dim * np.log(FREEDOM * np.pi)
        return constant - jnp.sum(jnp.log(self.scale)) - half * jnp.log1p(squares / FREEDOM)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_choice, key_component, key_noise, key_tail = jr.split(key, 4)
        dtype = self.means.dtype
        levels = jnp.cumsum(jnp.exp(self.logits))
        uniform = jr.uniform(key_component, dtype=dtype) * levels[-1]
        k = jnp.minimum(jnp.sum(uniform >= levels), levels.size - 1)
        noise = jr.normal(key_noise, self.shape, dtype)
        inside = self.means[k] + self.roots[k] @ noise
        if self.share == 0:
            return inside
        # χ²_4 / 4 from four normals: a gamma variate would be drawn by rejection
        degrees = jnp.mean(jr.normal(key_tail, (int(FREEDOM),), dtype) ** 2)
        cover = self.centre + self.scale * noise / jnp.sqrt(degrees)
        return jnp.where(jr.uniform(key_choice, dtype=dtype) < self.share, cover, inside)

    def responsibilities(self, x: Float[Array, " dim"]) -> Float[Array, " k"]:
        """The log of each Gaussian component's share in the density at x, up to a constant."""
        white = jnp.einsum("kij,kj->ki", self.factors, x[None] - self.means)
        levels = self.logits + jnp.sum(jnp.log(_diagonals(self.factors)), axis=1)
        return levels - 0.5 * jnp.sum(white**2, axis=1)

    @property
    def mean_root(self) -> Float[Array, "dim dim"]:
        """`Σ w_k R_k`, a scale for moves within a component."""
        return jnp.einsum("k,kij->ij", jnp.exp(self.logits), self.roots)

    def gaussians(self) -> GaussianMixture:
        """Return the Gaussian components alone, on the host."""
        roots = np.asarray(self.roots, np.float64)
        covariances = np.einsum("kij,klj->kil", roots, roots)
        means = np.asarray(self.means, np.float64)
        return GaussianMixture(np.exp(np.asarray(self.logits, np.float64)), means, covariances)


def triangular_inverse(factors: Array | np.ndarray) -> Array:
    """The inverses of lower triangular matrices `(..., dim, dim)`, row by row, without LAPACK.

    Row i of the inverse is `(e_i - Σ_{j<i} A_ij row_j) / A_ii`.
    """
    dim = factors.shape[-1]
    rows: list[Array] = []
    for i in range(dim):
        unit = jnp.broadcast_to(jnp.eye(dim, dtype=factors.dtype)[i], factors.shape[:-1])
        for j in range(i):
            unit = unit - factors[..., i, j, None] * rows[j]
        rows.append(unit / factors[..., i, i, None])
    return jnp.stack(rows, axis=-2)


def moments(
    log_weights: Float[Array, " k"], means: Float[Array, "k dim"], roots: Float[Array, "k dim dim"]
) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
    """The mean and the sds of a mixture."""
    weights = jnp.exp(log_weights)
    centre = weights @ means
    inside = jnp.sum(roots**2, axis=2) + (means - centre[None]) ** 2
    return centre, jnp.sqrt(weights @ inside)


def _diagonals(factors: Array) -> Array:
    return jnp.diagonal(factors, axis1=-2, axis2=-1)
