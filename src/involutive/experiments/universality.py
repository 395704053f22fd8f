"""The universality theorem, run: any transition as the proposal of an involutive network.

Four questions to the proof's construction, for three transitions T:

    does the exact involution give `T(φ, π₁) + ε π_(4..n+3)` on the event A, with determinant 1?
    how likely is A?
    does the law of the network's proposal reach that of T[φ] as its width m grows and ε_m falls?
    and what would Metropolis-Hastings accept of it?

Distances are energy distances from draws, averaged over independent sets with their standard
error; two independent sets of exact draws give the floor that no distance can be seen below.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive.auxiliary import standard_normal
from involutive.experiments.measures import mean_and_error
from involutive.involutions.blocks import Conjugate
from involutive.kernel.kernel import Kernel
from involutive.plotting.panels import log_axis, panels, style
from involutive.training.mgan.distance import energy_distance
from involutive.universality import (
    BIMODAL,
    TRANSITIONS,
    Transition,
    event,
    exact_involution,
    formula,
    law_of_bimodal,
    log_auxiliary_ratio,
    network_involution,
)

EXACT_DRAWS = 20_000  # draws of (φ, π) behind P(A), the lemma's error and acceptance
LOWEST = np.log(1e-40)  # log ratios below this are drawn at it


@dataclass(frozen=True)
class Config:
    """Sizes: ε's for A and for acceptance, widths m, starts φ as shares of Ω's radius."""

    seed: int = 0
    epsilons: tuple[float, ...] = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09)
    widths: tuple[int, ...] = (8, 32, 128, 512, 1024)
    starts: tuple[float, ...] = (-0.8, 0.1, 0.6)
    draws: int = 1500
    repeats: int = 8
    points: int = 8192

    @staticmethod
    def quick() -> "Config":
        """The same questions with fewer draws and narrower networks."""
        small = Config(widths=(8, 64, 384), starts=(-0.8, 0.6), draws=1000, repeats=6, points=4096)
        return replace(small, epsilons=(1.0, 0.5, 0.25, 0.125))

    def epsilon(self, width: int) -> float:
        """ε_m, which falls as the network widens."""
        return 1.0 / width


def run(config: Config) -> dict[str, Any]:
    """Return figures for every transition; in float64, which the exact formula deserves."""
    with jax.enable_x64(True):
        epsilons = jnp.asarray(config.epsilons)
        parts = [_study(t, config, (config.seed, i)) for i, t in enumerate(TRANSITIONS)]
        rng = np.random.default_rng((config.seed, len(TRANSITIONS)))
        u, pi = rng.normal(size=EXACT_DRAWS), rng.normal(size=(EXACT_DRAWS, 7))
        rate, median = _acceptance(epsilons, jnp.asarray(u), jnp.asarray(pi))
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]} | {
        "names": np.array([t.name for t in TRANSITIONS]),
        "epsilons": np.array(config.epsilons),
        "widths": np.array(config.widths),
        "network_epsilons": np.array([config.epsilon(m) for m in config.widths]),
        "acceptance": np.asarray(rate),
        "median_log_ratio": np.asarray(median),
    }


def _study(transition: Transition, config: Config, seed: tuple[int, ...]) -> dict[str, Any]:
    """Everything on one transition: the exact involution, the floor, the networks."""
    rng = np.random.default_rng(seed)
    phi = transition.radius * rng.uniform(-1, 1, (EXACT_DRAWS, transition.dim))
    phi, pi = phi / transition.dim**0.5, rng.normal(size=(EXACT_DRAWS, transition.dim + 6))
    exact = _exactness(transition, jnp.asarray(config.epsilons), jnp.asarray(phi), jnp.asarray(pi))
    laws = _laws(exact_involution(transition, 0.125), start(transition, 0.5), pi)
    rows = []
    for m in config.widths:
        epsilon = jnp.asarray(config.epsilon(m))
        f = network_involution(transition, epsilon, m, config.seed, config.points)
        rows.append(_compare_laws(transition, f, config, rng))
        rows[-1]["network_laws"] = _laws(f, start(transition, 0.5), pi)
    networks = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    # any width's exact draws would do for the floor and for the picture
    floor, true = networks.pop("floor")[0], networks.pop("true")[0]
    proposed = networks.pop("proposed")
    histogram = np.stack([true, proposed[0], proposed[-1]])
    exact = {name: np.asarray(value) for name, value in exact.items()}
    return exact | networks | {"floor": floor, "histogram": histogram, "exact_laws": laws}


def start(transition: Transition, share: float) -> Array:
    """The point of Ω at this share of its radius along the diagonal."""
    return jnp.full(transition.dim, share * transition.radius / transition.dim**0.5)


@eqx.filter_jit
def _exactness(transition: Transition, epsilons: Array, phi: Array, pi: Array) -> dict[str, Array]:
    """The mass of A with its union bound, and the errors of two formulas on A, for every ε."""
    n = transition.dim

    def at(epsilon: Array) -> dict[str, Array]:
        f = exact_involution(transition, epsilon)

        def one(phi: Array, pi: Array) -> tuple[Array, Array, Array]:
            moved, _ = f(jnp.concatenate([phi, pi]))
            error = jnp.max(jnp.abs(moved[:n] - formula(transition, epsilon, phi, pi)))
            ratio = 0.5 * jnp.sum(pi**2) - 0.5 * jnp.sum(moved[n:] ** 2)
            closed = log_auxiliary_ratio(transition, epsilon, phi, pi)
            return event(pi, epsilon), error, jnp.abs(ratio - closed) / (1 + jnp.abs(ratio))

        inside, error, off = jax.vmap(one)(phi, pi)
        misread = 2 * jax.scipy.stats.norm.cdf(-0.5 / epsilon / 2**0.5)
        far = jax.scipy.stats.chi2.sf(1 / epsilon**2, n + 6)
        return {
            "mass": jnp.mean(inside),
            "bound": jnp.maximum(0.0, 1 - misread - far),
            "lemma_error": jnp.max(error * inside),
            "ratio_error": jnp.max(off * inside),
        }

    return jax.lax.map(at, epsilons)


def _compare_laws(
    transition: Transition, f: Conjugate, config: Config, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Energy distances of f's proposals, and of exact draws, from exact draws of T[φ]."""
    phi = jnp.stack([start(transition, share) for share in config.starts])
    shape = len(config.starts), config.repeats
    u = jnp.asarray(rng.normal(size=(*shape, 2, config.draws)))
    pi = jnp.asarray(rng.normal(size=(*shape, config.draws, transition.dim + 6)))
    distance, floor, true, proposed = map(np.asarray, _compared(transition, f, phi, u, pi))
    last = {"true": true[-1].ravel(), "proposed": proposed[-1].ravel()}
    return {"distance": distance, "floor": floor} | last


@eqx.filter_jit
def _compared(
    transition: Transition, f: Conjugate, phi: Array, u: Array, pi: Array
) -> tuple[Array, Array, Array, Array]:
    def one(phi: Array, u: Array, pi: Array) -> tuple[Array, Array, Array, Array]:
        first, second = jax.vmap(jax.vmap(lambda u: transition.apply(phi, u)))(u)
        proposed = jax.vmap(lambda pi: f(jnp.concatenate([phi, pi]))[0][: phi.size])(pi)
        even = jnp.ones(pi.shape[0])
        distance = energy_distance(proposed, even, first)
        return distance, energy_distance(second, even, first), first[:, 0], proposed[:, 0]

    def at(inputs: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        return jax.lax.map(lambda draws: one(inputs[0], *draws), inputs[1:])

    return jax.lax.map(at, (phi, u, pi))


def _laws(f: Conjugate, phi: Array, pi: np.ndarray) -> np.ndarray:
    """Largest `|f(f(z)) - z|` and largest `|log|det Df(z)||` by autodiff, over a few π."""
    z = jnp.concatenate([jnp.broadcast_to(phi[None, :], (32, phi.size)), pi[:32]], axis=1)
    back = eqx.filter_jit(jax.vmap(lambda z: f(f(z)[0])[0]))(z)
    slopes = np.asarray(eqx.filter_jit(jax.vmap(jax.jacfwd(lambda z: f(z)[0])))(z))
    return np.array([np.abs(back - z).max(), np.abs(np.linalg.slogdet(slopes)[1]).max()])


@eqx.filter_jit
def _acceptance(epsilons: Array, u: Array, pi: Array) -> tuple[Array, Array]:
    """Mean acceptance and median log ratio in stationarity of the exact involution, p = T[φ]."""
    target = law_of_bimodal()
    states = jax.vmap(lambda u: BIMODAL.apply(jnp.zeros(1), u))(u)

    def at(epsilon: Array) -> tuple[Array, Array]:
        kernel = Kernel(target, exact_involution(BIMODAL, epsilon), standard_normal(7))
        ratio = jax.vmap(lambda x, v: kernel.propose(kernel.init(x), v).log_ratio)(states, pi)
        return jnp.mean(jnp.exp(jnp.minimum(ratio, 0.0))), jnp.median(ratio)

    return jax.lax.map(at, epsilons)


# ── What it says ────────────────────────────────────────────────────────────────────────────────


def noise_floor(data: Any) -> np.ndarray:
    """Two standard deviations of one distance between two sets of exact draws, worst φ, by T."""
    return 2 * data["floor"].std(-1, ddof=1).max(-1)


def table(data: Any) -> list[dict[str, Any]]:
    """One row a transition and width: distance with its error, floor, errors of the laws."""
    mean, error = mean_and_error(data["distance"])
    rows = []
    for t, name in enumerate(data["names"]):
        for m, width in enumerate(data["widths"]):
            worst = int(np.argmax(mean[t, m]))
            rows.append({
                "T": str(name), "m": int(width), "ε": float(data["network_epsilons"][m]),
                "energy distance, worst φ": mean[t, m, worst],
                "± se": error[t, m, worst],
                "noise floor": noise_floor(data)[t],
                "largest |f(f(z)) - z|": data["network_laws"][t, m, 0],
                "largest |log det|": data["network_laws"][t, m, 1],
            })  # fmt: skip
        rows.append({
            "T": str(name), "m": "exact R, S",
            "lemma's error on A": data["lemma_error"][t].max(),
            "largest |f(f(z)) - z|": data["exact_laws"][t, 0],
            "largest |log det|": data["exact_laws"][t, 1],
        })  # fmt: skip
    for e, epsilon in enumerate(data["epsilons"]):
        rows.append({
            "T": "acceptance, p the law of T", "m": "exact R, S", "ε": epsilon,
            "P(A)": data["mass"][1, e], "acceptance": data["acceptance"][e],
            "median log ratio": data["median_log_ratio"][e],
        })  # fmt: skip
    return rows


def claims(data: Any) -> dict[str, Any]:
    """The theorem's statements, and the one on acceptance that it does not make."""
    mean, error = mean_and_error(data["distance"])
    mass, floor, worst = data["mass"], noise_floor(data)[:, None], mean.max(-1)
    exact, networks, rate = data["exact_laws"], data["network_laws"], data["acceptance"]
    return {
        "the exact involution equals the lemma's formula on A to 1e-9": (
            data["lemma_error"] < 1e-9
        ).all(),
        "P(A) rises to 1 as ε falls": (np.diff(mass) >= 0).all() and mass[:, -1].min() > 0.99,
        "P(A) is at least the union bound": (mass >= data["bound"] - 0.005).all(),
        "the determinant is 1, exact and with networks": (
            exact[:, 1].max() < 1e-6 and networks[..., 1].max() < 1e-6
        ),
        "the networks are involutive": networks[..., 0].max() < 1e-6,
        "the distance falls with m until the noise floor, for every T": (
            (np.diff(worst, axis=1) < 0) | (worst[:, 1:] < floor)
        ).all(),
        "the distance reaches the noise floor for every T and φ": (
            mean[:, -1] - 2 * error[:, -1] < floor
        ).all(),
        "acceptance falls to 0 as ε falls, though T proposes p itself": (
            (np.diff(rate) <= 0).all() and rate[-1] < 1e-6
        ),
        "log Y(π')/Y(π) follows its closed form": (data["ratio_error"] < 1e-9).all(),
    }


def draw(data: Any) -> dict[str, Any]:
    """Four panels: P(A), the distance against m, two laws as histograms, acceptance."""
    figure, ((mass, distance), (laws, accept)) = panels(2, 2, (9.0, 6.6))
    for t, name in enumerate(data["names"]):
        mass.plot(data["epsilons"], data["mass"][t], label=str(name), **style(t))
    log_axis(mass, data["epsilons"])
    mass.set(xlabel="ε", ylabel="P(A)", title="How likely the event A is")
    mass.legend(loc="lower left")
    _draw_distances(distance, data)
    _draw_histograms(laws, data)
    accept.plot(data["epsilons"], np.maximum(data["acceptance"], np.exp(LOWEST)),
                label="mean acceptance", **style(0))  # fmt: skip
    accept.plot(data["epsilons"], np.exp(np.maximum(data["median_log_ratio"], LOWEST)),
                label="median ratio", **style(1))  # fmt: skip
    log_axis(accept, data["epsilons"])
    accept.set(yscale="log", xlabel="ε", ylabel="acceptance (cut at 1e-40)",
               title="Metropolis–Hastings, p the law of T")  # fmt: skip
    accept.legend()
    return {"universality": figure}


def _draw_distances(axes: Any, data: Any) -> None:
    mean, error = mean_and_error(data["distance"])
    floor = noise_floor(data)
    for t, name in enumerate(data["names"]):
        worst = mean[t].argmax(-1)[:, None]
        height = np.take_along_axis(mean[t], worst, 1)[:, 0]
        bar = np.take_along_axis(error[t], worst, 1)[:, 0]
        height = np.maximum(height, floor.min() / 10)  # an unbiased estimate may be negative
        axes.errorbar(data["widths"], height, 2 * bar, capsize=2, label=str(name), **style(t))
        axes.axhline(floor[t], **style(t, marker="", linewidth=0.7))
    log_axis(axes, data["widths"])
    axes.set(yscale="log", xlabel="hidden units m (ε = 1/m)",
             ylabel="energy distance, worst φ", title="From the network's law to T[φ]")  # fmt: skip
    axes.annotate("thin lines: noise floor", (0.03, 0.03), xycoords="axes fraction")


def _draw_histograms(axes: Any, data: Any) -> None:
    edges = np.linspace(-1.9, 1.9, 77)
    first, last = data["widths"][0], data["widths"][-1]
    names = ("T[φ]", f"network, m = {first}", f"network, m = {last}")
    for i, (row, name) in enumerate(zip(data["histogram"][1], names, strict=True)):
        heights, _ = np.histogram(row, edges, density=True)
        look = {key: style(i)[key] for key in ("color", "linestyle")}
        axes.stairs(heights, edges, label=name, linewidth=1.4, **look)
    axes.set(xlabel="φ'", ylabel="density", title=str(data["names"][1]))
    axes.legend(loc="upper center")
