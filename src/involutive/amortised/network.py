"""The network of a family: from the summary of a data set to the proposal of its posterior.

    data set D  ─►  s  ─►  MLP  ─►  the mixture Y_D  and the coordinates g_D it is a mixture in

`g_D` whitens the positions that training has seen; with splines, couplings that are conditional on
D follow. The proposal is `g_D⁻¹(π)` with π ~ Y_D, a mixture of Gaussians with full covariances. The
log density of a draw is exact in both cases: `log q(x) = log Y_D(g_D(x)) + log |det Dg_D(x)|`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Chain, Invert, RationalQuadraticSpline
from flowjax.distributions import Normal, Transformed
from flowjax.flows import coupling_flow
from jaxtyping import Array, Bool, Float, Key

from involutive.amortised.settings import AmortiseSettings
from involutive.amortised.summary import Summary, Sums
from involutive.auxiliary.defensive import SHARE, DefensiveMixture
from involutive.bijections.whitening import Whitening
from involutive.core.errors import check
from involutive.core.types import Number
from involutive.storage.codec import register


@register
class Given(AbstractBijection):
    """A conditional bijection with its condition fixed.

    Args:
        bijection: conditional on a vector.
        condition: that vector.
    """

    bijection: AbstractBijection
    condition: Float[Array, " context"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, bijection: AbstractBijection, condition: Float[Array, " context"]):
        self.bijection, self.condition = bijection, condition
        self.shape, self.cond_shape = bijection.shape, None

    def transform_and_log_det(
        self, x: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        return self.bijection.transform_and_log_det(x, self.condition)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        return self.bijection.inverse_and_log_det(y, self.condition)


class SetProposal(NamedTuple):
    """The proposal of one posterior: a mixture, and the coordinates that it is a mixture in."""

    g: AbstractBijection
    mixture: DefensiveMixture

    @property
    def law(self) -> Transformed:
        """q, the distribution of `g⁻¹(π)` with π ~ Y."""
        return Transformed(self.mixture, Invert(self.g))

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """`log q(x)`."""
        y, log_det = self.g.transform_and_log_det(x)
        return self.mixture.log_prob(y) + log_det


@register
class Estimator(eqx.Module):
    """From a data set to its proposal."""

    summary: Summary
    head: eqx.nn.MLP
    white: Whitening
    flow: AbstractBijection | None
    components: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    broadest: Number = eqx.field(static=True)
    sharpest: Number = eqx.field(static=True)

    def __init__(
        self,
        rows: np.ndarray,
        exchangeable: bool,
        white: Whitening,
        settings: AmortiseSettings,
        key: Key[Array, ""],
    ):
        """From feature rows and the whitening of positions that training will see."""
        key_summary, key_head = jr.split(key)
        self.summary = Summary(rows, exchangeable, settings, key_summary)
        self.white, self.components, self.dim = white, settings.components, white.shape[0]
        self.broadest, self.sharpest = settings.broadest, settings.sharpest
        self.flow = couplings(self.dim, settings, jr.fold_in(key, 2)) if settings.splines else None
        out = mixture_size(self.components, self.dim) + (settings.context if self.flow else 0)
        self.head = eqx.nn.MLP(
            self.summary.size, out, settings.width, settings.depth, jax.nn.silu, key=key_head
        )

    def sums(self, rows: Float[Array, "... columns"], mask: Bool[Array, " n"] | None) -> Sums:
        """The summary of a data set."""
        return self.summary(rows, mask)

    def proposal(self, sums: Sums, share: Number = SHARE) -> SetProposal:
        """The proposal, whose mixture has a heavy-tailed cover of that share."""
        out = self.head(self.summary.pooled(sums))
        cut = mixture_size(self.components, self.dim)
        g = self.white
        if self.flow is not None:
            g = Chain([self.white, Given(self.flow, out[cut:])])
        return SetProposal(g, self._mixture(out[:cut], share))

    def _mixture(self, out: Float[Array, " parameters"], share: Number) -> DefensiveMixture:
        k, dim = self.components, self.dim
        logits, means, diagonal, below = jnp.split(out, np.cumsum([k, k * dim, k * dim]))
        row, column = np.tril_indices(dim, -1)
        diagonal = jnp.exp(jnp.clip(diagonal.reshape(k, dim), self.broadest, self.sharpest))
        factors = jnp.zeros((k, dim, dim), out.dtype)
        factors = factors.at[:, np.arange(dim), np.arange(dim)].set(diagonal)
        # relative to the diagonal, so that narrow components need no large outputs
        lower = below.reshape(k, -1) * diagonal[:, row]
        factors = factors.at[:, row, column].set(lower)
        # components start apart: a mixture of equal components has no reason to differ
        spread = _spread(k, dim).astype(out.dtype)
        return DefensiveMixture(logits, means.reshape(k, dim) + spread, factors, float(share))


def couplings(dim: int, settings: AmortiseSettings, key: Key[Array, ""]) -> AbstractBijection:
    """FlowJAX's spline couplings, conditional on a context; near the identity to begin with."""
    check(dim > 1, f"splines need at least two coordinates, got {dim}; set splines=0")
    return coupling_flow(
        key,
        base_dist=Normal(jnp.zeros(dim)),
        transformer=RationalQuadraticSpline(knots=settings.knots, interval=settings.interval),
        cond_dim=settings.context,
        flow_layers=settings.splines,
        nn_width=settings.coupling_width,
        nn_activation=jax.nn.silu,
        invert=False,
    ).bijection


def mixture_size(components: int, dim: int) -> int:
    """How many numbers describe a mixture."""
    return components * (1 + dim + dim * (dim + 1) // 2)


def _spread(count: int, dim: int) -> np.ndarray:
    """Fixed standard normal offsets of the components."""
    return np.random.default_rng(0).normal(size=(count, dim))
