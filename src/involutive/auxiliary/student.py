"""Mixtures of Student-t distributions, with tails as heavy as their degrees of freedom say.

With y = A_k (x - μ_k), a component has one of two shapes in d dimensions:

    multivariate   |A_k| Γ((ν+d)/2) / (Γ(ν/2) (νπ)^{d/2}) (1 + |y|²/ν)^{-(ν+d)/2}
    product        |A_k| Π_i t_ν(y_i)
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
from involutive.core.types import ArrayLike


class StudentTMixture(AbstractDistribution):
    """`Σ_k w_k t_{ν_k}(μ_k, S_k)`: a mixture whose components have their own degrees of freedom.

    Args:
        weights: `(k,)`.
        means: `(k, dim)`, the locations.
        shapes: `(k, dim, dim)`, the matrices S_k; the covariance is `ν/(ν-2) S_k` where ν > 2.
        degrees: `(k,)` degrees of freedom, or one number for all.
        product: whether a component is a product of univariate t in the coordinates `A_k (x - μ_k)`
            with `A_kᵀ A_k = S_k⁻¹`, instead of the multivariate t.

    Raises:
        InputError: if the shapes do not fit together, or degrees of freedom are not positive and
            finite.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr, involutive as inv
        >>> q = inv.StudentTMixture(jnp.ones(1), jnp.zeros((1, 2)), jnp.eye(2)[None], 3.0)
        >>> q.sample(jr.key(0)).shape
        (2,)
    """

    normal: GaussianMixture  # weights, locations and factors A_k
    log_degrees: Float[Array, " k"]
    product: bool = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(
        self,
        weights: ArrayLike,
        means: ArrayLike,
        shapes: ArrayLike,
        degrees: ArrayLike,
        *,
        product: bool = False,
    ):
        self.normal = GaussianMixture(weights, means, shapes)
        count = self.normal.means.shape[0]
        found = np.broadcast_to(np.asarray(degrees, float), (count,))
        check(
            np.isfinite(found).all() and (found > 0).all(),
            f"degrees must be positive and finite, got {found.tolist()[:8]}",
        )
        self.log_degrees = jnp.asarray(np.log(found), float)
        self.product, self.shape, self.cond_shape = bool(product), self.normal.shape, None

    @property
    def degrees(self) -> Float[Array, " k"]:
        """The degrees of freedom of every component."""
        return jnp.exp(self.log_degrees)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        law, nu, dim = self.normal, self.degrees, self.shape[0]
        factors = law.factors()
        offsets = jnp.einsum("kij,kj->ki", factors, law.means)
        squares = (jnp.einsum("kij,j->ki", factors, x) - offsets) ** 2
        width = 1 if self.product else dim
        constant = gammaln((nu + width) / 2) - gammaln(nu / 2) - width / 2 * jnp.log(nu * jnp.pi)
        if self.product:
            spread = jnp.sum(jnp.log1p(squares / nu[:, None]), axis=1)
            constant = dim * constant
        else:
            spread = jnp.log1p(jnp.sum(squares, axis=1) / nu)
        levels = jax.nn.log_softmax(law.logits) + jnp.sum(law.log_diagonal, axis=1) + constant
        return logsumexp(levels - (nu + width) / 2 * spread)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_component, key_noise, key_scale = jr.split(key, 3)
        law, dim = self.normal, self.shape[0]
        levels = jnp.cumsum(jax.nn.softmax(law.logits))
        uniform = jr.uniform(key_component, dtype=levels.dtype) * levels[-1]
        k = jnp.minimum(jnp.sum(uniform >= levels), levels.size - 1)
        half = self.degrees[k] / 2
        count = (dim,) if self.product else (1,)
        # χ²_ν / ν by its logarithm: for small ν the variate itself would round to zero
        log_scale = jr.loggamma(key_scale, half, count, levels.dtype) - jnp.log(half)
        noise = jr.normal(key_noise, (dim,), levels.dtype) * jnp.exp(-0.5 * log_scale)
        return law.means[k] + law.inverse_factors()[k] @ noise
