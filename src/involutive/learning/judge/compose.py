"""Composition: a global proposal joined with a local move, and how often to move locally."""

from involutive.auxiliary import GaussianMixture
from involutive.core.types import Number
from involutive.involutions.symmetries import Symmetries
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.kernel.symmetry_move import SymmetryMove
from involutive.learning.fit.trained import has_couplings
from involutive.learning.settings import LearnSettings


def compose(
    proposal: Kernel, local: Kernel, chance: Number, symmetries: Symmetries | None = None
) -> AbstractKernel:
    """Join a global proposal with a local move, which is made with probability `chance`.

    The local move makes the kernel irreducible whatever was learned, and frees chains from states
    that the proposal rarely reaches. At `chance` 1 the kernel makes a local move before every
    global one, and a random symmetry of the density between the two.
    """
    if chance >= 1 and symmetries is not None:
        return Cycle([local, SymmetryMove(proposal.target, symmetries), proposal])
    if chance >= 1:
        return Cycle([local, proposal])
    return Mixture([local, proposal], [chance, 1 - chance])


def local_chances(ess: Number, settings: LearnSettings, cheap: bool) -> tuple[Number, ...]:
    """Probabilities of a local move to try, in order, for a proposal with that ESS per draw.

    A good proposal rarely needs a local move; a poor one needs it before every global move. `cheap`
    means that a local move costs one density evaluation.
    """
    judge = settings.judge
    if ess < settings.poor:
        return (judge.often[-1],) if cheap else (1.0,)
    return judge.rarely if ess >= judge.keeps else judge.often


def is_mixture(kernel: Kernel) -> bool:
    """Whether a proposal is a Gaussian mixture behind a whitening."""
    return isinstance(kernel.auxiliary, GaussianMixture) and not has_couplings(kernel)
