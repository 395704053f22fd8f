"""EM of weighted draws for mixtures of Student-t distributions, on the host in NumPy.

With responsibilities r and u = (ν + d)/(ν + δ²), δ² the squared distance in the component's metric
(for products of univariate t: per coordinate, d = 1), the M-step has

    μ = Σ r u x / Σ r u,   S = Σ r u (x-μ)(x-μ)ᵀ / Σ r,

and ν solves the digamma equation (Liu and Rubin 1995)

    log(ν/2) - ψ(ν/2) + 1 + mean_r(log u - u) + ψ((ν+d)/2) - log((ν+d)/2) = 0.

ν = ∞ is the mixture of Gaussians, u = 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from flowjax.distributions import AbstractDistribution
from scipy.special import digamma, gammaln, logsumexp

from involutive.auxiliary.mixtures import GaussianMixture
from involutive.auxiliary.student import StudentTMixture
from involutive.core.errors import check, check_count
from involutive.core.statistics import effective_size
from involutive.core.types import ArrayLike

LEAST_DEGREES, MOST_DEGREES = 0.5, 200.0  # searched between; from the upper on a Gaussian. A guess
SWEEPS = 200  # EM steps at most
GAIN = 1e-5  # nats per draw of a step, below which EM ends. A guess
FLOOR = 1e-6  # of the pooled variance, added to every shape matrix: none collapses. A guess
STARTS = 2  # starts of which the better is kept. A guess
COUNTS = (1, 2, 3, 4, 6, 8)  # components tried by `fit_mixture`. A guess


@dataclass(frozen=True)
class StudentTFit:
    """A mixture fitted by EM: its parameters and the mean log likelihood of the draws.

    Attributes:
        weights, means, shapes, degrees: of the components; infinite degrees are Gaussians.
        product: whether components are products of univariate t.
        log_likelihood: the weighted mean over draws.
    """

    weights: np.ndarray
    means: np.ndarray
    shapes: np.ndarray
    degrees: np.ndarray
    product: bool
    log_likelihood: float

    def distribution(self) -> AbstractDistribution:
        """The mixture as an auxiliary distribution."""
        if (self.degrees > 0.99 * MOST_DEGREES).all():
            return GaussianMixture(self.weights, self.means, self.shapes)
        degrees = np.minimum(self.degrees, MOST_DEGREES)
        return StudentTMixture(self.weights, self.means, self.shapes, degrees, product=self.product)


def em_student_t(
    draws: ArrayLike,
    components: int,
    *,
    weights: ArrayLike | None = None,
    degrees: float | None = None,
    product: bool = False,
    means: ArrayLike | None = None,
    seed: int = 0,
    gain: float = GAIN,
) -> StudentTFit:
    """Fit a mixture of Student-t distributions to weighted draws.

    Args:
        draws: `(n, dim)`.
        components: number of components.
        weights: `(n,)` importance weights of the draws; by default equal.
        degrees: fixed degrees of freedom, `inf` for Gaussians; None learns every component's.
        product: products of univariate t along the coordinates instead of multivariate t.
        means: `(components, dim)` to start from; by default chosen among the draws.
        seed: the seed of that choice.
        gain: EM ends when a step gains fewer nats per draw than this.

    Returns:
        The parameters; `.distribution()` makes an auxiliary distribution of them.

    Raises:
        InputError: if there are fewer draws than components, or draws that are not finite.

    Example:
        >>> import numpy as np, involutive as inv
        >>> draws = np.random.default_rng(0).standard_t(3, size=(2000, 2))
        >>> bool(2 < inv.em_student_t(draws, 1, product=True).degrees[0] < 5)
        True
    """
    x = np.asarray(draws, np.float64)
    check(
        x.ndim == 2 and np.isfinite(x).all() and len(x) > check_count("components", components),
        f"draws must be finite, of shape (n, dim) with n above {components}, got {x.shape}",
    )
    omega = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64)
    check(
        omega.shape == (len(x),) and (omega >= 0).all() and omega.sum() > 0,
        f"weights must be {len(x)} numbers of at least 0, got shape {omega.shape}",
    )
    rng, omega = np.random.default_rng(seed), omega / omega.sum()
    starts = [np.asarray(means, float)] if means is not None else [
        _spread_out(x, omega, components, rng) for _ in range(1 if components == 1 else STARTS)
    ]  # fmt: skip
    fits = [_Em(x, omega, start, degrees, product).run(gain) for start in starts]
    return max(fits, key=lambda fit: fit.log_likelihood)


def fit_mixture(
    draws: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    heavy: bool = False,
    most: int = 8,
    seed: int = 0,
) -> AbstractDistribution:
    """Fit a mixture whose number of components minimises BIC: Gaussian, or the best of both tails.

    Args:
        draws: `(n, dim)`.
        weights: `(n,)` importance weights; by default equal.
        heavy: try Student-t components too, multivariate and products.
        most: maximum number of components.
        seed: the seed of the starts of EM.

    Returns:
        A `GaussianMixture` or a `StudentTMixture`.

    Example:
        >>> import numpy as np, involutive as inv
        >>> x = np.random.default_rng(0).normal(size=(500, 1))
        >>> x = x + np.repeat([-9.0, 9.0], 250)[:, None]
        >>> inv.fit_mixture(x).means.shape
        (2, 1)
    """
    rows = np.asarray(draws, np.float64)
    omega = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    count = effective_size(omega)  # as many draws of equal weight
    dim = rows.shape[1]
    kinds: list[dict[str, Any]] = [{"degrees": np.inf}]
    if heavy:
        kinds += [{"product": product} for product in ((False, True) if dim > 1 else (False,))]
    best, score = None, np.inf
    for kind in kinds:
        before = np.inf
        for k in (k for k in COUNTS if k <= min(most, max(1, int(count // (2 * dim + 2))))):
            fit = em_student_t(rows, k, weights=omega, seed=seed, **kind)
            each = 1 + (2 * dim if kind.get("product") else dim + dim * (dim + 1) / 2)
            bic = -2 * count * fit.log_likelihood + (k * (each + ("degrees" not in kind))) * np.log(
                count
            )
            if bic < score:
                best, score = fit, bic
            if bic > before:
                break
            before = bic
    assert best is not None
    return best.distribution()


class _Em:
    """One run of EM."""

    def __init__(
        self, x: np.ndarray, omega: np.ndarray, means: np.ndarray, degrees: float | None,
        product: bool,
    ):  # fmt: skip
        k, dim = means.shape
        self.x, self.omega, self.learn, self.product = x, omega, degrees is None, product
        low, high = np.quantile(x, [0.16, 0.84], axis=0)
        spread = np.maximum((high - low) / 2, 1e-12) ** 2
        self.floor = FLOOR * spread
        self.weights, self.means = np.full(k, 1 / k), means.copy()
        self.shapes = np.tile(np.diag(spread / k ** (2 / dim)), (k, 1, 1))
        self.degrees = np.full(k, 4.0 if degrees is None else float(degrees))

    def run(self, gain: float) -> StudentTFit:
        last = value = -np.inf
        for _ in range(SWEEPS):
            logs, squares = self._log_densities()
            total = np.asarray(logsumexp(logs, axis=1))
            value = float(self.omega @ total)
            if value - last < gain:
                break
            last = value
            self._maximise(self.omega[:, None] * np.exp(logs - total[:, None]), squares)
        return StudentTFit(self.weights, self.means, self.shapes, self.degrees, self.product, value)

    def _log_densities(self) -> tuple[np.ndarray, np.ndarray]:
        """`(n, k)` log w t(x), and squared distances `(n, k)`, for products `(n, k, dim)`."""
        dim = self.x.shape[1]
        factors = np.linalg.cholesky(self.shapes)
        centred = self.x[None] - self.means[:, None]
        if self.product:
            sd = np.sqrt(np.einsum("kii->ki", self.shapes))
            squares = np.moveaxis((centred / sd[:, None]) ** 2, 0, 1)
        else:
            solved = np.linalg.solve(factors, np.swapaxes(centred, 1, 2))
            squares = np.sum(solved**2, axis=1).T
        log_det = np.sum(np.log(np.einsum("kii->ki", factors)), axis=1)
        levels = np.log(np.maximum(self.weights, 1e-300)) - log_det
        if np.isinf(self.degrees).all():
            whole = squares.sum(2) if self.product else squares
            return levels - 0.5 * (whole + dim * np.log(2 * np.pi)), squares
        nu, width = self.degrees, 1 if self.product else dim
        constant = gammaln((nu + width) / 2) - gammaln(nu / 2) - width / 2 * np.log(nu * np.pi)
        if self.product:
            spread = np.log1p(squares / np.reshape(nu, (-1, 1))).sum(2)
            return levels + dim * constant - (nu + 1) / 2 * spread, squares
        return levels + constant - (nu + dim) / 2 * np.log1p(squares / nu), squares

    def _maximise(self, r: np.ndarray, squares: np.ndarray) -> None:
        dim = self.x.shape[1]
        mass = np.maximum(r.sum(0), 1e-12)
        width = 1 if self.product else dim
        nu = self.degrees[:, None] if self.product else self.degrees
        u = np.ones_like(squares) if np.isinf(self.degrees).all() else (nu + width) / (nu + squares)
        for k in range(len(mass)):
            pull = r[:, k, None] * (u[:, k] if self.product else u[:, k, None])
            self.means[k] = (pull * self.x).sum(0) / np.maximum(pull.sum(0), 1e-300)
            centred = self.x - self.means[k]
            if self.product:
                shape = np.diag((pull * centred**2).sum(0) / mass[k])
            else:
                shape = (pull * centred).T @ centred / mass[k]
            self.shapes[k] = shape + np.diag(self.floor)
        if self.learn:
            gaps = np.log(u) - u
            means = np.einsum("nk,nk->k", r, gaps.mean(2) if self.product else gaps) / mass
            self.degrees = np.array([
                _solve_degrees(mean, old, width)
                for mean, old in zip(means, self.degrees, strict=True)
            ])  # fmt: skip
        self.weights = mass / mass.sum()


def _solve_degrees(mean: float, old: float, dim: int) -> float:
    """The root ν of the digamma equation, by bisection in log ν."""
    rest = 1 + mean + digamma((old + dim) / 2) - np.log((old + dim) / 2)
    low, high = np.log(LEAST_DEGREES), np.log(MOST_DEGREES)
    for _ in range(50):
        middle = 0.5 * (low + high)
        half = 0.5 * np.exp(middle)
        # log(ν/2) - ψ(ν/2) falls as ν grows
        low, high = (middle, high) if np.log(half) - digamma(half) + rest > 0 else (low, middle)
    return float(np.exp(0.5 * (low + high)))


def _spread_out(
    x: np.ndarray, omega: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draws far from each other (k-means++), outliers drawn in, then a few steps of k-means."""
    low, high = np.quantile(x, [0.02, 0.98], axis=0)
    scale = np.maximum(high - low, 1e-12)
    rows = np.clip(x, low, high) / scale
    centres = rows[[rng.choice(len(x), p=omega)]]
    for _ in range(count - 1):
        near = np.min(((rows[:, None] - centres[None]) ** 2).sum(2), axis=1) * omega
        chances = near / near.sum() if near.sum() > 0 else omega
        centres = np.concatenate([centres, rows[[rng.choice(len(x), p=chances)]]])
    for _ in range(10):
        label = ((rows[:, None] - centres[None]) ** 2).sum(2).argmin(1)
        for k in range(count):
            mine = omega * (label == k)
            if mine.sum() > 0:
                centres[k] = mine @ rows / mine.sum()
    return centres * scale
