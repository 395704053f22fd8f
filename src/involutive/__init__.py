"""Learned MCMC with proposals that are their own inverse. Exact, whatever the network learned."""

from involutive import _wiring as _wiring
from involutive import interop, targets
from involutive._version import __version__
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
from involutive.kernel.classical import a_nice_mc, hmc, random_walk
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State
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
from involutive.targets.target import Target

__all__ = [
    "AbstractInvolution",
    "AbstractKernel",
    "AdditiveCoupling",
    "Budget",
    "Conjugate",
    "Cycle",
    "Draws",
    "Evidence",
    "FunctionBlock",
    "GaussianMixture",
    "Info",
    "InputError",
    "Kernel",
    "Lattice",
    "Learned",
    "MatrixBlock",
    "Mixture",
    "Outcome",
    "PermutationBlock",
    "Recipe",
    "Sandwich",
    "State",
    "Target",
    "Until",
    "__version__",
    "a_nice_mc",
    "additive_cascade",
    "assess",
    "evidence",
    "hmc",
    "interop",
    "lattice",
    "learn",
    "load",
    "merge",
    "paper_network",
    "random_walk",
    "register",
    "sample",
    "save",
    "standard_normal",
    "swap_network",
    "targets",
]
