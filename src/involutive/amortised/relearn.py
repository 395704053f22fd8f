"""Data sets that the network fails on, learned one by one with its proposal as a start."""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.layout import DataSet
from involutive.amortised.program import Sizes
from involutive.amortised.result import SetDraws
from involutive.amortised.verdict import SetVerdict, mixing
from involutive.core.types import Number
from involutive.diagnostics.evidence import evidence
from involutive.learning.budget import Budget
from involutive.learning.learn import learn
from involutive.sampling.sample import sample


def relearned(
    many: FamilyKernel,
    data: DataSet,
    before: tuple[SetVerdict, SetDraws],
    key: Key[Array, ""],
    sizes: Sizes,
    budget: Budget | Number,
) -> tuple[SetVerdict, SetDraws]:
    """Learn a proposal for one data set, sample with it, and judge the draws as `learn` does."""
    key_learn, key_sample, key_evidence = jr.split(key, 3)
    target = many.family.at(data)
    learned = learn(target, key=key_learn, start=many.at(data), budget=budget, progress=False)
    draws = sample(
        learned, key=key_sample, num_chains=sizes.chains, num_samples=sizes.draws, progress=False
    )
    found = evidence(learned, key=key_evidence, draws=draws, progress=False)
    serious = [str(f) for f in draws.summary().findings if f.serious]
    if not learned.outcome.converged:
        serious.append(learned.outcome.advice)
    reasons = tuple(serious) + tuple(found.reasons)
    positions = draws.positions.astype(np.float64)
    modes = draws.modes()
    effective, ratio = mixing(positions, modes.labels, positions.std(axis=(0, 1)))
    verdict = replace(
        before[0], trusted=not reasons, reasons=reasons, ess=effective,
        ess_per_draw=effective / draws.log_density.size, r_hat=ratio,
        acceptance=float(np.mean(draws.acceptance_rate)), efficiency=found.effective_share,
        pareto_k=found.pareto_k, log_z=found.bridge.log_z, log_z_error=found.bridge.error,
        mode_weights=tuple(modes.weights.tolist()), mode_errors=tuple(modes.errors.tolist()),
        learned=True,
    )  # fmt: skip
    return verdict, SetDraws(
        draws.positions, draws.log_density, draws.accepted, draws.acceptance_rate, draws.nonfinite,
        modes.labels.astype(np.int8),
    )  # fmt: skip
