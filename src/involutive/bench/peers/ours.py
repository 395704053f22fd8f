"""This library with its defaults: `learn` from the density, then `sample`."""

import time
from dataclasses import replace

import jax
import jax.random as jr
import numpy as np

import involutive.interop.arviz  # noqa: F401  no peer's imports are part of its time
from involutive.bench.entry import SPREAD
from involutive.bench.peers.base import Integral, PeerRun, Task, keep_sampling, timed
from involutive.core.errors import InputError
from involutive.diagnostics.estimators import importance
from involutive.diagnostics.evidence import evidence
from involutive.kernel.kernel import AbstractKernel
from involutive.kernel.proposals import proposal_distribution
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.learn import learn
from involutive.learning.problem import initial_distribution
from involutive.sampling.sample import sample

CHAINS, DRAWS, FIRST = 512, 500, 250
REPEATS, EACH = 10, 2000  # estimates of log Z and draws of each: the protocol of fab-jax


def run(task: Task) -> PeerRun:
    """Learn, compile and warm up the chains, then sample in chunks."""
    budget = 20.0 if task.quick else task.seconds  # as long as no chunk of a peer begins after it
    # the target's own prior is X where it has one; else N(0, 3² I), which is also the default
    wide = task.target.initial is None and task.spread != SPREAD
    initial = initial_distribution(None, task.target, task.spread) if wide else None
    learned = learn(task.target, key=task.seed, initial=initial, budget=budget, progress=False)
    kernel, warmup, learning = learned.kernel, learned.warmup, task.spent
    first = sample(
        kernel, key=task.seed + 1, num_chains=CHAINS, num_samples=FIRST, num_warmup=warmup,
        initial=learned.initial, progress=False,
    )  # fmt: skip
    places, cost = first.positions[:, -1], CHAINS * DRAWS * evaluations_per_step(kernel)

    def draw(count: int, seed: int) -> np.ndarray:
        draws = sample(
            kernel, key=seed, num_chains=CHAINS, num_samples=count, initial=places, progress=False
        )
        return draws.positions

    _, again = timed(lambda: draw(FIRST, task.seed + 1))
    setup = task.spent - 2 * again  # as for SMC: of the first draws, compilation and warm-up alone

    def chunk(i: int) -> tuple:
        nonlocal places
        draws = draw(DRAWS, task.seed + 2 + i)
        places = draws[:, -1]
        return draws, cost

    draws, seconds, evaluations = keep_sampling(task, chunk)
    spent = learned.outcome.evaluations + cost * FIRST / DRAWS
    nearly = learned.outcome.nearly_learned
    integral = log_z(kernel, task.seed + 1000) if task.evidence else None
    if integral is not None and integral.alone_seconds is not None:
        integral = replace(
            integral, alone_seconds=learning + integral.alone_seconds,
            alone_evaluations=learned.outcome.evaluations + integral.alone_evaluations,
        )  # fmt: skip
    return PeerRun(
        draws, setup, seconds, spent, evaluations, learned_seconds=nearly, integral=integral
    )


def log_z(kernel: AbstractKernel, seed: int) -> Integral:
    """The bridge estimate of `evidence`, and importance sampling by the published protocol."""
    began, law = time.perf_counter(), proposal_distribution(kernel)
    if law is None:
        return Integral(None, note="the kernel's proposal has no known density")
    try:
        found = evidence(kernel, key=seed, progress=False)
    except InputError as error:
        return Integral(None, note=str(error))
    count = REPEATS * EACH
    points, log_q = law.sample_and_log_prob(jr.key(seed + 1), (count,))
    log_p = jax.jit(jax.vmap(kernel.target.log_density))(points)
    weights = np.asarray(log_p, np.float64) - np.asarray(log_q, np.float64)
    weights = np.where(np.isnan(weights), -np.inf, weights).reshape(REPEATS, EACH)
    repeats = tuple(float(importance(row).log_z) for row in weights)
    return Integral(
        None if found.withheld else found.log_z, found.error, repeats, found.effective_share,
        time.perf_counter() - began, float(found.evaluations + count), found.seconds,
        float(found.evaluations), "; ".join(found.reasons),
    )  # fmt: skip
