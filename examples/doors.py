"""Code written for emcee, dynesty and nautilus, used without changing a line.

Run it: `python examples/doors.py`. Each likelihood has the form that its sampler takes.
"""

import numpy as np
import scipy.stats

import involutive as inv

RNG = np.random.default_rng(1)
X = np.linspace(0, 10, 20)
Y = 0.7 * X + 2.0 + 0.5 * RNG.normal(size=20)

# ── emcee: log_prob(theta), a line fit ──────────────────────────────────────────────────────────


def log_prob(theta):
    slope, intercept, log_f = theta
    if not (-5 < slope < 5 and -10 < intercept < 10 and -5 < log_f < 2):
        return -np.inf
    variance = np.exp(2 * log_f)
    return -0.5 * np.sum((Y - slope * X - intercept) ** 2 / variance + np.log(variance))


# ── dynesty, UltraNest: loglike(theta) and prior_transform(u), an egg box ───────────────────────


def prior_transform(u):
    return 10 * np.pi * u - 5 * np.pi


def loglike(theta):
    return (2 + np.cos(theta[0] / 2) * np.cos(theta[1] / 2)) ** 5 / 10


# ── dynesty with a periodic parameter: a correlated normal of an offset and a phase ─────────────

PHASE = 6.2  # just below 2π: the mode lies across the seam


def wave_transform(u):
    return np.array([10 * u[0] - 5, 2 * np.pi * u[1]])


def wave_loglike(theta):
    turn = np.mod(theta[1] - PHASE + np.pi, 2 * np.pi) - np.pi
    d, t = (theta[0] - 1) / 0.5, turn / 0.4
    return -0.5 * (d**2 - 1.2 * d * t + t**2) / (1 - 0.6**2)


# ── nautilus: a likelihood of a dict and a prior of named distributions ─────────────────────────


class Prior:
    """The shape of `nautilus.Prior`; the real one is taken as well."""

    def __init__(self):
        self.keys, self.dists = [], []

    def add_parameter(self, key, dist=(0, 1)):
        self.keys.append(key)
        self.dists.append(dist)


prior = Prior()
prior.add_parameter("a", dist=(-5, 5))
prior.add_parameter("b", dist=scipy.stats.norm(loc=0, scale=2.0))


def likelihood(param_dict):
    return -0.5 * ((param_dict["a"] - param_dict["b"] - 1) / 0.3) ** 2


TARGETS = {
    "line": lambda: inv.Target(log_prob, dim=3, backend="numpy"),
    "egg box": lambda: inv.Target.from_prior_transform(loglike, prior_transform, 2, ["x", "y"]),
    "wave": lambda: inv.Target.from_prior_transform(
        wave_loglike, wave_transform, 2, ["offset", "phase"], periodic=[1]
    ),
    "named": lambda: inv.Target(likelihood, prior, backend="numpy"),
}


def main():
    """Learn and sample each; return the draws by name."""
    found = {}
    for name, make in TARGETS.items():
        target = make()
        start = {"initial": [[0.5, 1.0, 0.0], [1.0, 3.0, -1.0]]} if name == "line" else {}
        kernel = inv.learn(target, key=0, progress=False, **start)
        draws = inv.sample(kernel, key=1, num_chains=32, num_samples=500, progress=False)
        print(f"# {name}\n{draws.summary()}\n{target.black_box.calls} calls\n")
        found[name] = draws
    return found


if __name__ == "__main__":
    main()
