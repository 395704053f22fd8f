"""`amortise`: train one network for every posterior of a family."""

import time

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import make_room
from involutive.amortised.family import Family
from involutive.amortised.kernel import FamilyKernel, Trained
from involutive.amortised.network import Estimator
from involutive.amortised.rows import efficiency, particles, simulated
from involutive.amortised.saved import SavedTraining
from involutive.amortised.settings import AmortiseSettings
from involutive.amortised.stages import Stages
from involutive.core.errors import check
from involutive.core.keys import KeyLike, as_key, split
from involutive.core.types import Number
from involutive.learning.budget import Budget, as_budget
from involutive.learning.problem import initial_distribution
from involutive.sampling.interrupt import Interrupt
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike
from involutive.targets.validation import check_density
from involutive.training.fit import Rows


def amortise(
    family: Family,
    *,
    key: KeyLike,
    budget: Budget | Number | None = None,
    settings: AmortiseSettings | None = None,
    initial: AbstractDistribution | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> FamilyKernel:
    """Train one network that makes proposals for every data set of a family.

    With a simulator, the network is trained by likelihood on simulated pairs; without one, on
    annealed particles of the family's data sets. In both cases training on the density itself
    follows, by the log-variance objective; it is undone if held-out data sets lose by it. Proposals
    are mixtures of Gaussians, with spline couplings conditional on the data if the settings ask
    for them.

    Args:
        family: the density of parameters and data.
        key: an int seed or a JAX key.
        budget: seconds that training may take; by default the settings decide.
        settings: sizes of the network and lengths of the training.
        initial: X, from which particles are annealed without a simulator; by default the prior,
            else N(0, 3² I).
        checkpoint: a file in which training is saved as it goes.
        resume: continue from `checkpoint`; if there is no such file, training begins anew.
        progress: show progress; by default on a terminal.

    Returns:
        The kernel of the family: `kernel.at(data)` is the kernel of one data set. It leaves that
        posterior invariant, whatever was learned. Ctrl-C returns the network trained so far.

    Raises:
        InputError: if an argument does not fit, or the density is finite nowhere.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> def log_likelihood(mu, data): return -0.5 * jnp.sum((data - mu) ** 2)
        >>> def simulate(key, mu): return mu + jr.normal(key, (5,))
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 2))
        >>> family = inv.Family(log_likelihood, parameters, simulate=simulate)
        >>> small = inv.AmortiseSettings(steps=50, steps_density=0, width=16)
        >>> many = inv.amortise(family, key=0, settings=small, progress=False)
        >>> many.at(jnp.ones(5)).target.dim
        1
    """
    check(isinstance(family, Family), f"family must be an inv.Family, got {type(family).__name__}")
    make_room()
    began, settings, limit = time.perf_counter(), settings or AmortiseSettings(), as_budget(budget)
    check(limit.evaluations is None, "budget of amortise must be in seconds, got evaluations")
    check_density(family.template)
    key_rows, key_network, key_likelihood, key_density, key_measure = split(as_key(key), 5)
    saved = SavedTraining(checkpoint, resume, key_network, settings, family)
    with (
        Progress("amortising", None, progress, most=limit.seconds) as bar,
        Interrupt(False) as stop,
    ):
        stages = Stages(family, settings, limit, saved, stop, began)
        bar.stage("simulating" if family.simulate else "annealing", 1, 3)
        rows = _rows(family, settings, initial, key_rows)
        network = stages.chosen(rows, key_network)
        networks = stages.both(network, rows, key_likelihood, key_density, bar)
        network, shares = _better(networks, family, rows, key_measure, settings)
        bar.update(efficiency=float(np.median(shares)))
    outcome = Trained(
        float(np.median(shares)), float(np.mean(shares < settings.poor)), stages.steps,
        time.perf_counter() - began, family.simulate is not None, stages.ended,
        saved.splines or 0, stages.tried,
    )  # fmt: skip
    return FamilyKernel(family, network, outcome)


def _rows(
    family: Family,
    settings: AmortiseSettings,
    initial: AbstractDistribution | None,
    key: Key[Array, ""],
) -> Rows:
    """What to train on: simulated pairs, or annealed particles."""
    if family.simulate is not None:
        return simulated(family, settings, key)
    law = initial_distribution(initial, family.template, settings.initial_sd)
    return particles(family, settings, law, key)


def _better(
    networks: tuple[Estimator, Estimator],
    family: Family,
    rows: Rows,
    key: Key[Array, ""],
    settings: AmortiseSettings,
) -> tuple[Estimator, np.ndarray]:
    """The second network where held-out data sets have not lost by it, and its effective shares."""
    # the same draws for both, so that they can be compared
    before, after = (
        efficiency(network, family, rows.held.data, jr.fold_in(key, 0), settings)
        for network in networks
    )
    second = np.median(after) >= np.median(before)
    return (networks[1], after) if second else (networks[0], before)
