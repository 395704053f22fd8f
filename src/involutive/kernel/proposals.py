"""The density q of a proposal that ignores the state, where it is known.

For a function block `f(φ, π) = (g⁻¹(π), g(φ))` the proposal φ' = g⁻¹(π) does not depend on φ. Its
distribution is normalised, `q(φ) = Y(g(φ)) |det Dg(φ)|`, and so it gives importance weights p/q.
"""

from flowjax.bijections import Invert
from flowjax.distributions import AbstractDistribution, Transformed

from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.kernel.replicas import Tempered


def proposal_distribution(kernel: AbstractKernel) -> AbstractDistribution | None:
    """Return the known distribution q of a kernel's proposal, or None.

    Args:
        kernel: any kernel. In a `Mixture` or a `Cycle` the last part with a known q counts, which
            in a learned kernel is the learned proposal.

    Returns:
        q as a FlowJAX distribution with `sample` and `log_prob`; None for kernels that only move
        from where they are, as HMC does.

    Example:
        ```python
        import involutive as inv
        from involutive.kernel.proposals import proposal_distribution

        target = inv.targets.gaussian(2)
        assert proposal_distribution(inv.hmc(target, 0.5, 4)) is None
        ```
    """
    mover = kernel.mover
    if isinstance(mover, Mixture | Cycle):
        found = (proposal_distribution(part) for part in reversed(mover.kernels))
        return next((q for q in found if q is not None), None)
    if isinstance(mover, Tempered):
        return mover.reference
    if not isinstance(mover, Kernel) or not isinstance(mover.involution, FunctionBlock):
        return None
    if mover.auxiliary.shape != (mover.target.dim,):
        return None
    return Transformed(mover.auxiliary, Invert(mover.involution.g))
