"""A mixture of a distribution with a wide one, so that p/q is bounded where q falls too fast."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.core.errors import check
from involutive.core.types import Number


class Covered(AbstractDistribution):
    """`(1 - s) q(x) + s w(x)`: q with a share s of a wide distribution w.

    Far from the target q may fall faster than p. There p/q is huge, and a chain of independence
    moves would hardly ever leave; with the share of w, p/q is at most `p / (s w)`.

    Args:
        base: q.
        wide: w, on the same space.
        share: s, above 0 and below 1.

    Raises:
        InputError: if the share is out of range or the spaces differ.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> from involutive.auxiliary.covered import Covered
        >>> wide = inv.GaussianMixture(jnp.ones(1), jnp.zeros((1, 2)), 100 * jnp.eye(2)[None])
        >>> q = Covered(inv.standard_normal(2), wide, 0.01)
        >>> bool(q.log_prob(jnp.array([30.0, 0.0])) > -20)
        True
    """

    base: AbstractDistribution
    wide: AbstractDistribution
    share: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, base: AbstractDistribution, wide: AbstractDistribution, share: Number):
        check(0 < share < 1, f"share must be above 0 and below 1, got {share}")
        check(
            base.shape == wide.shape,
            f"base and wide must have one shape, got {base.shape} and {wide.shape}",
        )
        self.base, self.wide, self.share = base, wide, float(share)
        self.shape, self.cond_shape = base.shape, None

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        return jnp.logaddexp(
            np.log1p(-self.share) + self.base.log_prob(x),
            np.log(self.share) + self.wide.log_prob(x),
        )

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_base, key_wide, key_which = jr.split(key, 3)
        wide = jr.bernoulli(key_which, self.share)
        return jnp.where(wide, self.wide.sample(key_wide), self.base.sample(key_base))
