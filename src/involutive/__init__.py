"""Learned MCMC with proposals that are their own inverse. Exact, whatever the network learned."""

from involutive import interop, targets
from involutive._version import __version__
from involutive.architectures import paper_network, swap_network
from involutive.auxiliary import GaussianMixture, standard_normal
from involutive.bijections import AdditiveCoupling, additive_cascade
from involutive.classical import a_nice_mc, hmc, random_walk
from involutive.codec import register
from involutive.errors import InputError
from involutive.involutions import (
    AbstractInvolution,
    Conjugate,
    FunctionBlock,
    MatrixBlock,
    PermutationBlock,
    Sandwich,
)
from involutive.kernel import AbstractKernel, Cycle, Info, Kernel, Mixture, State
from involutive.lattice import Lattice, lattice
from involutive.sampling.assess import assess
from involutive.sampling.checkpoint import merge
from involutive.sampling.draws import Draws
from involutive.sampling.run import sample
from involutive.sampling.until import Until
from involutive.storage import load, save
from involutive.targets import Target
from involutive.training.budget import Budget
from involutive.training.learn import learn
from involutive.training.learned import Learned, Outcome
from involutive.training.recipe import Recipe

__all__ = [
    "AbstractInvolution",
    "AbstractKernel",
    "AdditiveCoupling",
    "Budget",
    "Conjugate",
    "Cycle",
    "Draws",
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
