"""The planar robot: ten joint angles whose arm ends at a goal, with exact weighted draws.

`θ_0 ~ N(0, 1)` and `θ_i ~ N(0, 0.2²)` are the angles between links of length 1, and the end
`Σ_i (cos, sin)(θ_0 + … + θ_i)` is N(goal, 0.01² I) for one goal or the nearest of four (SCLD).

Draws: `θ_1 … θ_8` come from a Student-t proposal that is fitted first, the end e from the
likelihood. The distance |e| fixes θ_9 up to a sign, the direction of e fixes θ_0 up to turns. With
ρ the distance of the ninth joint and a the angle of the last link against it, de = ρ |sin a|
dθ_0 dθ_9, so the weight is the prior over the proposal's density and ρ |sin a|. The mean weight
is Z.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from involutive.core.keys import generator
from involutive.targets.target import Modes, Target, Vector

LINKS, REACH, REACH_SD = 10, 7.0, 0.01
PRIOR_SDS = np.array([1.0] + [0.2] * (LINKS - 1))
TURNS = 2 * np.pi * np.arange(-1, 2)
ROUNDS, SIZE, FREEDOM = 4, 200_000, 5  # fits of the proposal, draws of each, its tails
LOG_Z = {1: -11.6795, 4: -10.6185}  # of `pool`, two seeds agree to 1e-4
SHARES = (0.3433, 0.0838, 0.28645, 0.28645)  # of the mass at four goals, of `pool`
CONSTANT = -float(np.sum(np.log(np.sqrt(2 * np.pi) * PRIOR_SDS)))  # of the prior


class RobotPool(NamedTuple):
    """Weighted exact draws: points `(n, 10)`, log weights, the goal of each, and log Z."""

    points: np.ndarray
    log_weights: np.ndarray
    goal: np.ndarray
    log_z: float


def goals_of(count: int) -> np.ndarray:
    """The first goals: (7, 0), (-7, 0), (0, 7), (0, -7)."""
    return REACH * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])[:count]


def robot(goals: int) -> Target:
    """The posterior of the angles; prior and likelihood are normalised."""
    places = goals_of(goals)
    constant = CONSTANT - float(np.log(2 * np.pi * REACH_SD**2))

    def squares(x: Vector) -> Float[Array, " goals"]:
        angle = jnp.cumsum(x)
        end = jnp.stack([jnp.sum(jnp.cos(angle)), jnp.sum(jnp.sin(angle))])
        return jnp.sum((end[None] - jnp.asarray(places, x.dtype)) ** 2, axis=1)

    def log_density(x: Vector) -> Float[Array, ""]:
        prior = jnp.sum((x / jnp.asarray(PRIOR_SDS, x.dtype)) ** 2)
        return -0.5 * (prior + jnp.min(squares(x)) / REACH_SD**2) + constant

    def sample(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
        found = pool(goals)
        weights = np.exp(found.log_weights - found.log_weights.max())
        rng = generator(key)
        return jnp.asarray(found.points[rng.choice(len(weights), n, p=weights / weights.sum())])

    modes = Modes(lambda x: jnp.argmin(squares(x)), SHARES) if goals > 1 else None
    return Target(log_density, LINKS, name=f"robot({goals})", sample=sample, modes=modes)


def shares(goals: int) -> list[float]:
    """The share of the mass at each goal."""
    found = pool(goals)
    mass = np.bincount(
        found.goal, np.exp(found.log_weights - found.log_weights.max()), minlength=goals
    )
    return (mass / mass.sum()).tolist()


@lru_cache
def pool(goals: int, seed: int = 0) -> RobotPool:
    """Fit the proposal of `θ_1 … θ_8` by weighted moments, both signs alike, then draw."""
    rng = np.random.default_rng(seed)
    mean, covariance = np.zeros(LINKS - 2), 0.3**2 * np.eye(LINKS - 2)
    for _ in range(ROUNDS - 1):
        joints, log_q = _propose(rng, mean, covariance)
        angles, log_weights = _close(rng, joints, log_q, goals)[:2]
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        bent = joints * np.sign(angles[:, 1:].sum(axis=1))[:, None]  # an arc to either side
        mean = weights @ bent
        covariance = (weights[:, None] * (bent - mean)).T @ (bent - mean)
    angles, log_weights, goal = _close(rng, *_propose(rng, mean, covariance), goals)
    log_z = float(logsumexp(log_weights) - np.log(SIZE))
    kept = np.isfinite(log_weights)
    return RobotPool(angles[kept], log_weights[kept], goal[kept], log_z)


def _propose(
    rng: np.random.Generator, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Student-t draws about ±mean, and their log density."""
    size = (SIZE, len(mean))
    scale = np.sqrt(rng.chisquare(FREEDOM, SIZE) / FREEDOM)[:, None]
    spread = rng.normal(size=size) @ np.linalg.cholesky(covariance).T / scale
    joints = rng.choice((-1.0, 1.0), SIZE)[:, None] * (mean + spread)
    law: Any = multivariate_t  # SciPy's stub has the order of other arguments
    sides = [law.logpdf(joints, side * mean, covariance, FREEDOM) for side in (1, -1)]
    return joints, np.logaddexp(*sides) - np.log(2)


def _close(
    rng: np.random.Generator, joints: np.ndarray, log_q: np.ndarray, goals: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve the first and the last angle for an end at a goal: angles, log weights, goals."""
    size, places = len(joints), goals_of(goals)
    total = np.cumsum(joints, axis=1)
    across, up = 1 + np.cos(total).sum(axis=1), np.sin(total).sum(axis=1)
    rho, ninth = np.hypot(across, up), np.arctan2(up, across)
    noise = REACH_SD * rng.normal(size=(size, 2))  # in the frame of the goal
    length = np.hypot(REACH + noise[:, 0], noise[:, 1])
    cosine = (length**2 - rho**2 - 1) / (2 * rho)
    fits = np.abs(cosine) < 1
    last = np.arccos(np.where(fits, cosine, 0.0)) * rng.choice((-1.0, 1.0), size)
    tip = np.arctan2(
        rho * np.sin(ninth) + np.sin(ninth + last), rho * np.cos(ninth) + np.cos(ninth + last)
    )
    wanted = np.arctan2(places[:, 1], places[:, 0])[None] + np.arctan2(
        noise[:, 1], REACH + noise[:, 0]
    ).reshape(-1, 1)
    first = _wrapped(wanted - tip[:, None])[:, :, None] + TURNS  # (size, goals, turns)
    flat = first.reshape(size, -1)
    log_first = -0.5 * flat**2
    choice = np.argmax(log_first + rng.gumbel(size=flat.shape), axis=1)
    ending = _wrapped(ninth + last - total[:, -1])
    log_prior = CONSTANT - 0.5 * ((joints**2).sum(axis=1) + ending**2) / PRIOR_SDS[-1] ** 2
    log_weights = log_prior + logsumexp(log_first, axis=1) + np.log(2) - log_q
    log_weights -= np.log(rho * np.abs(np.sin(last)))
    angles = np.column_stack([flat[np.arange(size), choice], joints, ending])
    return angles, np.where(fits, log_weights, -np.inf), choice // len(TURNS)


def _wrapped(angle: np.ndarray) -> np.ndarray:
    """The angle in [-π, π)."""
    return np.mod(angle + np.pi, 2 * np.pi) - np.pi
