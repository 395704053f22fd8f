"""The public names, in the order of their use; `involutive` imports this file when one is used."""

from involutive import interop, targets
from involutive._version import __version__
from involutive.amortised.amortise import amortise
from involutive.amortised.family import Family
from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.many import sample_many
from involutive.amortised.result import Many
from involutive.amortised.settings import AmortiseSettings, ManySettings
from involutive.amortised.verdict import SetVerdict
from involutive.auxiliary import ConditionalNormal, GaussianMixture, standard_normal
from involutive.auxiliary.em import em_student_t, fit_mixture
from involutive.auxiliary.hierarchical import Hierarchical
from involutive.auxiliary.products import ProductMixture, blocks_of, fit_product, interactions
from involutive.auxiliary.student import StudentTMixture
from involutive.bijections.cascades import additive_cascade
from involutive.bijections.couplings import AdditiveCoupling
from involutive.core.errors import InputError, PrecisionWarning
from involutive.diagnostics.assess import assess
from involutive.diagnostics.compare import Comparison, compare
from involutive.diagnostics.evidence import evidence
from involutive.diagnostics.measured import Evidence
from involutive.diagnostics.modes import Mode, Modes
from involutive.involutions.architectures import paper_network, swap_network
from involutive.involutions.blocks import (
    AbstractInvolution,
    Conjugate,
    FunctionBlock,
    PermutationBlock,
    Sandwich,
    SignFlipBlock,
)
from involutive.involutions.lattice import Lattice, lattice
from involutive.involutions.matrix import MatrixBlock
from involutive.involutions.symmetries import SignedPermutation, Symmetries
from involutive.involutions.symmetry_search import symmetries
from involutive.kernel.adaptation import Adaptation, adapt_ladder, tempered
from involutive.kernel.classical import (
    a_nice_mc,
    hmc,
    metropolis_hastings,
    multiple_try,
    random_walk,
)
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State
from involutive.kernel.ladder import Ladder
from involutive.kernel.persistent import Persistent
from involutive.kernel.replicas import Tempered
from involutive.kernel.symmetry_move import Symmetrised, SymmetryMove
from involutive.learning.budget import Budget
from involutive.learning.learn import learn
from involutive.learning.outcome import Learned, Outcome
from involutive.learning.settings import (
    BootstrapSettings,
    BudgetSettings,
    FitSettings,
    FrugalSettings,
    JudgeSettings,
    LearnSettings,
    LookSettings,
    RefineSettings,
    ReplicaSettings,
    SearchSettings,
    StructureSettings,
)
from involutive.sampling.chunks import merge
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
    "AmortiseSettings",
    "Beta",
    "BootstrapSettings",
    "Budget",
    "BudgetSettings",
    "Cauchy",
    "Comparison",
    "ConditionalNormal",
    "Conjugate",
    "Cycle",
    "Dirichlet",
    "Draws",
    "Evidence",
    "Exponential",
    "Family",
    "FamilyKernel",
    "FitSettings",
    "FrugalSettings",
    "FunctionBlock",
    "Gamma",
    "GaussianMixture",
    "HalfCauchy",
    "HalfNormal",
    "Hierarchical",
    "Info",
    "InputError",
    "JudgeSettings",
    "Kernel",
    "Ladder",
    "Lattice",
    "LearnSettings",
    "Learned",
    "LogNormal",
    "LookSettings",
    "Many",
    "ManySettings",
    "MatrixBlock",
    "Mixture",
    "Mode",
    "Modes",
    "Normal",
    "Outcome",
    "Parameters",
    "PermutationBlock",
    "Persistent",
    "PrecisionWarning",
    "ProductMixture",
    "RefineSettings",
    "ReplicaSettings",
    "Sandwich",
    "SearchSettings",
    "SetVerdict",
    "SignFlipBlock",
    "SignedPermutation",
    "State",
    "StructureSettings",
    "StudentT",
    "StudentTMixture",
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
    "amortise",
    "angle",
    "assess",
    "blocks_of",
    "compare",
    "em_student_t",
    "evidence",
    "fit_mixture",
    "fit_product",
    "hmc",
    "interactions",
    "interop",
    "interval",
    "lattice",
    "learn",
    "load",
    "merge",
    "metropolis_hastings",
    "multiple_try",
    "ordered",
    "paper_network",
    "positive",
    "random_walk",
    "real",
    "register",
    "sample",
    "sample_many",
    "save",
    "simplex",
    "standard_normal",
    "swap_network",
    "symmetries",
    "targets",
    "tempered",
]
