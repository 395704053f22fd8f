"""Learned MCMC with proposals that are their own inverse. Exact, whatever the network learned.

The public names stand in `_public.py`. They are imported when the first of them is used: JAX and
the rest take seconds, and the command must answer a mistyped file name before that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import involutive._wiring  # noqa: F401  says where views of results are made
from involutive._version import __version__ as __version__

if TYPE_CHECKING:
    from involutive._public import *  # noqa: F403
    from involutive._public import __all__ as __all__


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        public = import_module("involutive._public")
        # without names of its own it is being imported, and asks for a part of this package
        if name == "__all__" or name in getattr(public, "__all__", ()):
            value = globals()[name] = getattr(public, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(import_module("involutive._public").__all__)
from involutive import _wiring as _wiring
from involutive import interop, targets
from involutive.auxiliary import GaussianMixture, standard_normal
from involutive.bijections.cascades import additive_cascade
from involutive.bijections.couplings import AdditiveCoupling
from involutive.core.errors import InputError
from involutive.diagnostics.assess import assess
from involutive.diagnostics.evidence import evidence
from involutive.diagnostics.measured import Evidence
from involutive.involutions.architectures import paper_network, swap_network
from involutive.involutions.blocks import (
    AbstractInvolution,
    Conjugate,
    FunctionBlock,
    PermutationBlock,
    Sandwich,
)
from involutive.involutions.lattice import Lattice, lattice
from involutive.involutions.matrix import MatrixBlock
from involutive.involutions.symmetries import SignedPermutation, Symmetries
from involutive.involutions.symmetry_search import symmetries
from involutive.kernel.adaptation import Adaptation, adapt_ladder, tempered
from involutive.kernel.classical import a_nice_mc, hmc, random_walk
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State
from involutive.kernel.ladder import Ladder
from involutive.kernel.replicas import Tempered
from involutive.kernel.symmetry_move import Symmetrised, SymmetryMove
from involutive.learning.budget import Budget
from involutive.learning.fit.recipe import Recipe
from involutive.learning.learn import learn
from involutive.learning.outcome import Learned, Outcome
from involutive.sampling.checkpoint import merge
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample
from involutive.sampling.stopping import Until
from involutive.storage.codec import register
from involutive.storage.save_load import load, save
from involutive.targets.declare import angle, interval, ordered, positive, real, simplex
from involutive.targets.parameters import Parameters
from involutive.targets.priors import (
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
    VonMises,
)
from involutive.targets.target import Target

__all__ = [
    "AbstractInvolution",
    "AbstractKernel",
    "Adaptation",
    "AdditiveCoupling",
    "Beta",
    "Budget",
    "Cauchy",
    "Conjugate",
    "Cycle",
    "Dirichlet",
    "Draws",
    "Evidence",
    "Exponential",
    "FunctionBlock",
    "Gamma",
    "GaussianMixture",
    "HalfCauchy",
    "HalfNormal",
    "Info",
    "InputError",
    "Kernel",
    "Ladder",
    "Lattice",
    "Learned",
    "LogNormal",
    "MatrixBlock",
    "Mixture",
    "Normal",
    "Outcome",
    "Parameters",
    "PermutationBlock",
    "Recipe",
    "Sandwich",
    "SignedPermutation",
    "State",
    "StudentT",
    "Symmetries",
    "Symmetrised",
    "SymmetryMove",
    "Target",
    "Tempered",
    "Uniform",
    "Until",
    "VonMises",
    "__version__",
    "a_nice_mc",
    "adapt_ladder",
    "additive_cascade",
    "angle",
    "assess",
    "evidence",
    "hmc",
    "interop",
    "interval",
    "lattice",
    "learn",
    "load",
    "merge",
    "ordered",
    "paper_network",
    "positive",
    "random_walk",
    "real",
    "register",
    "sample",
    "save",
    "simplex",
    "standard_normal",
    "swap_network",
    "symmetries",
    "targets",
    "tempered",
]
