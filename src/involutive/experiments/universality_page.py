"""The page of `universality`: its table, its claims and its picture."""

from typing import Any

import numpy as np

from involutive.core.types import Axes, Figure
from involutive.experiments.measures import mean_and_error
from involutive.plotting.panels import log_axis, panels, style

LOWEST = np.log(1e-40)  # log ratios below this are drawn at it


def noise_floor(data: dict[str, Any]) -> np.ndarray:
    """Two standard deviations of one distance between two sets of exact draws, worst φ, by T."""
    return 2 * data["floor"].std(-1, ddof=1).max(-1)


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per transition and width: distance with its error, floor, errors of the laws."""
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
                "δ_m where visited": data["error_visited"][t, m],
                "δ_m over Ω⁺⁺, at least": data["error_ball"][t, m],
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


def claims(data: dict[str, Any]) -> dict[str, Any]:
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
        "the networks approximate R and S better with m where they are visited": (
            data["error_visited"][:, -1] < data["error_visited"][:, 0]
        ).all(),
        "the networks approximate R and S better with m over all of Ω⁺⁺": (
            data["error_ball"][:, -1] < data["error_ball"][:, 0]
        ).all(),
        "acceptance falls to 0 as ε falls, though T proposes p itself": (
            (np.diff(rate) <= 0).all() and rate[-1] < 1e-6
        ),
        "log Y(π')/Y(π) follows its closed form": (data["ratio_error"] < 1e-9).all(),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
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


def _draw_distances(axes: Axes, data: dict[str, Any]) -> None:
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


def _draw_histograms(axes: Axes, data: dict[str, Any]) -> None:
    edges = np.linspace(-1.9, 1.9, 77)
    first, last = data["widths"][0], data["widths"][-1]
    names = ("T[φ]", f"network, m = {first}", f"network, m = {last}")
    for i, (row, name) in enumerate(zip(data["histogram"][1], names, strict=True)):
        heights, _ = np.histogram(row, edges, density=True)
        look = {key: style(i)[key] for key in ("color", "linestyle")}
        axes.stairs(heights, edges, label=name, linewidth=1.4, **look)
    axes.set(xlabel="φ'", ylabel="density", title=str(data["names"][1]))
    axes.legend(loc="upper center")
