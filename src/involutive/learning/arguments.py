"""The arguments of `learn`: check them, and make of them the problem that the stages share."""

import time

from flowjax.distributions import AbstractDistribution
from jax.sharding import Mesh

from involutive._xla.compilation import make_room
from involutive.core.errors import check
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import ArrayLike, Number
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.budget import Budget, as_budget
from involutive.learning.problem import Problem, initial_distribution, pose_problem
from involutive.learning.settings import LearnSettings
from involutive.learning.warm_start import as_initial
from involutive.sampling.devices import devices_here
from involutive.sampling.draws import Draws
from involutive.storage.format import PathLike
from involutive.targets.fingerprint import check_density
from involutive.targets.target import Target

STRATEGIES = ("pipeline", "bootstrap")

Initial = AbstractDistribution | AbstractKernel | Draws | ArrayLike | None


def check_arguments(
    target: Target,
    strategy: str,
    samples: ArrayLike | None,
    checkpoint: PathLike | None,
    resume: bool,
    settings: LearnSettings | None,
) -> None:
    """Raise `InputError` if the arguments of `learn` do not fit each other."""
    check(
        isinstance(target, Target),
        f"target must be a Target, got {type(target).__name__}; "
        "wrap a log density as inv.Target(log_density, dim=...)",
    )
    check(
        strategy in STRATEGIES,
        f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}",
    )
    check(
        strategy == "pipeline" or (samples is None and checkpoint is None),
        "strategy='bootstrap' learns from its own draws and keeps no checkpoint; "
        "leave samples= and checkpoint= out",
    )
    check(
        checkpoint is not None or not resume,
        "resume=True needs a file to resume from; pass checkpoint= as well",
    )
    check(
        settings is None or isinstance(settings, LearnSettings),
        f"settings must be inv.LearnSettings(...), got {type(settings).__name__}",
    )


def problem_of(
    target: Target,
    initial: Initial,
    settings: LearnSettings | None,
    budget: Budget | Number | None,
    key: KeyLike,
    progress: bool | None,
    mesh: Mesh | None,
) -> tuple[Problem, AbstractDistribution | ArrayLike | None]:
    """The problem that the arguments of `learn` pose, and `initial` as a distribution or points.

    Raises:
        InputError: if an argument does not fit, or the density is no function of the position.
    """
    began = time.perf_counter()
    make_room()
    root, settings = as_key(key), settings or LearnSettings()
    given = as_initial(initial, settings.search)
    x = initial_distribution(given, target, settings.initial_sd, settings.search)
    check_density(target)
    problem = pose_problem(
        target, x, settings, as_budget(budget), root, progress, devices_here(mesh), began
    )
    return problem, given
