"""The kernel of a family: a network that makes an ordinary kernel of every data set.

For a data set D the involution is `f_D(φ, π) = (g_D⁻¹(π), g_D(φ))` with π ~ Y_D, where the network
computes g_D and Y_D from D. D is fixed during a step, so that the kernel is exact for every D by
the one ratio of `kernel.py`, whatever the network has learned.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from flowjax.distributions import AbstractDistribution
from paramax import unwrap

from involutive._version import __version__
from involutive._xla.compilation import jit_once, on_device
from involutive.amortised.family import Family
from involutive.amortised.layout import DataSet, Layout, Observed
from involutive.amortised.network import Estimator, SetProposal
from involutive.amortised.objective import proposal_of, sums_of
from involutive.amortised.settings import ManySettings
from involutive.amortised.summary import Sums
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.core.types import Number
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.classical import random_walk
from involutive.kernel.composite import Cycle
from involutive.kernel.kernel import Kernel
from involutive.learning.outcome import Learned, Outcome
from involutive.storage.codec import Decoder, Encoder, register
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_kind
from involutive.targets.fingerprint import difference, fingerprint
from involutive.targets.target import Target

KIND = "family kernel"


@register
@dataclass(frozen=True)
class Trained:
    """What training reached.

    Attributes:
        efficiency: the median effective share of importance weights over held-out data sets.
        poor: the share of held-out data sets below `AmortiseSettings.poor`.
        steps: updates made by this call.
        seconds: wall time of training.
        simulated: whether a simulator was used; else the density and data sets alone.
        ended: "finished", "budget" or "interrupted".
        splines: spline couplings of the proposals; 0 for mixtures alone.
        tried: efficiency without and with splines after a trial; empty where there was none.
    """

    efficiency: float
    poor: float
    steps: int
    seconds: float
    simulated: bool
    ended: str = "finished"
    splines: int = 0
    tried: tuple[float, ...] = ()

    def __str__(self) -> str:
        ended = "" if self.ended == "finished" else f" ({self.ended})"
        return (
            f"trained in {self.seconds:.0f} s{ended}, {self.steps:,} updates: on held-out data "
            f"sets {self.efficiency:.2f} of the proposal's draws are effective at the median, "
            f"below 0.1 in {self.poor:.1%} of them"
        )


class Parts(NamedTuple):
    """The kernel of one data set, and its parts."""

    proposal: Kernel
    moves: Cycle
    law: AbstractDistribution


class FamilyKernel(eqx.Module):
    """A network that makes proposals for every data set of a family; `amortise` returns it.

    Args:
        family: the density of parameters and data.
        estimator: the network.
        outcome: what training reached.

    Attributes:
        family: the density of parameters and data.
        estimator: the network.
        outcome: what training reached.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> def log_likelihood(mu, data): return -0.5 * jnp.sum((data - mu) ** 2)
        >>> def simulate(key, mu): return mu + jr.normal(key, (5,))
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 2))
        >>> family = inv.Family(log_likelihood, parameters, simulate=simulate)
        >>> small = inv.AmortiseSettings(steps=50, steps_density=0, width=16)
        >>> many = inv.amortise(family, key=0, settings=small, progress=False)
        >>> isinstance(many, inv.FamilyKernel), many.at(jnp.ones(5)).initial.shape
        (True, (1,))
    """

    family: Family = eqx.field(static=True)
    estimator: Estimator
    outcome: Trained = eqx.field(static=True)

    def at(self, data: DataSet) -> Learned:
        """Return the kernel of one data set, for `sample`, `evidence`, `save` and BlackJAX.

        Args:
            data: a data set that looks like the family's others.

        Returns:
            A learned proposal mixed with a random walk of its scale. Nothing has been measured on
            this data set yet: `sample_many` judges many data sets, `sample(...).summary()` one.

        Raises:
            InputError: if the data set does not look like the family's others.

        Example:
            ```python
            kernel = many.at(light_curve)
            draws = inv.sample(kernel, key=0)
            ```
        """
        return self._learned(self.family.at(data), self.sums(data))

    def stream(self, data: DataSet) -> "Stream":
        """Return a running summary that later observations can be added to.

        Args:
            data: the observations so far; rows must be exchangeable.

        Returns:
            The stream; the cost of `stream.add(new)` depends on the new observations alone.

        Raises:
            InputError: if rows are not exchangeable.
        """
        check(
            self.family.layout.exchangeable,
            "a stream needs exchangeable observations; declare the family with exchangeable=True",
        )
        return Stream(self, self.sums(data), (data,))

    def sums(self, data: DataSet) -> Sums:
        """The network's summary of a data set."""
        observed = jax.tree.map(on_device, self.family.layout.padded(data))
        return _sums(self.estimator, self.family, observed)

    def parts(self, target: Target, proposal: SetProposal, step: Number) -> Parts:
        """The kernel of one data set from its proposal; it may be traced."""
        g, mixture = proposal
        q = proposal.law
        # a scale alone: the random walk is exact whatever the splines do to it
        scale = step / target.dim**0.5 * unwrap(self.estimator.white.factor) @ mixture.mean_root
        moves = Kernel(target, FunctionBlock(g), mixture, q)
        return Parts(moves, Cycle([random_walk(target, scale, q), moves]), q)

    def _learned(self, target: Target, sums: Sums) -> Learned:
        settings = ManySettings()
        parts = self.parts(target, self.estimator.proposal(sums), settings.step)
        advice = (
            "nothing was measured on this data set yet; inv.sample_many judges many, and "
            "inv.sample(...).summary() one"
        )
        outcome = Outcome(
            float("nan"), self.outcome.efficiency, float("nan"), 0, 0, 0.0, False, advice
        )
        return Learned(target, parts.law, parts.moves, settings.warmup, outcome)

    def save(self, path: PathLike) -> None:
        """Save the network, apart from the family, as data; `inv.save` calls this.

        Args:
            path: the file to write.
        """
        encode = Encoder()
        header = {
            "kind": KIND,
            "involutive": __version__,
            "tree": encode({"estimator": self.estimator, "outcome": self.outcome}),
            "layout": encode(self.family.layout, "layout"),
            "family": self.family.name,
            "fingerprint": fingerprint(_probe(self.family)),
        }
        write_tensors(path, encode.arrays, header)

    def __repr__(self) -> str:
        return f"FamilyKernel({self.family.name}: {self.outcome})"


def load_family_kernel(path: PathLike, family: Family) -> FamilyKernel:
    """Load a network saved by `FamilyKernel.save`, for the family given; `inv.load` calls this."""
    file = as_path(path)
    arrays, header = read_tensors(file)
    check_kind(file, header, KIND)
    try:
        decode = Decoder(arrays, None)
        parts, layout = decode(header["tree"]), decode(header["layout"])
        kernel = FamilyKernel(family, parts["estimator"], parts["outcome"])
        same = isinstance(layout, Layout) and layout.names == family.layout.names
        check(same and layout.shapes == family.layout.shapes, "its data sets have another form")
        observed = family.layout.padded(_zeros(family))
        jax.eval_shape(lambda d: proposal_of(kernel.estimator, family, d, 0.0).mixture, observed)
    except Exception as error:  # whatever a strange description breaks
        raise InputError(
            f"{file} does not describe a network of this family: {first_line(error)}"
        ) from error
    found = difference(header.get("fingerprint"), fingerprint(_probe(family)))
    if found is not None:
        warnings.warn(
            f"{file} was saved for another density ({header.get('family')}) than {family.name}: "
            f"{found}; chains leave the new density invariant, but the proposals may fit badly",
            stacklevel=3,
        )
    return kernel


class Stream(NamedTuple):
    """A proposal that is kept up to date as observations come in.

    Sums over observations are added, so that an update costs what the new observations cost.

    Attributes:
        many: the kernel of the family.
        sums: the network's sums over all observations so far.
        batches: the observations, as they came.
    """

    many: FamilyKernel
    sums: Sums
    batches: tuple[DataSet, ...]

    def add(self, new: DataSet) -> "Stream":
        """Return the stream with more observations."""
        return Stream(self.many, self.sums + self.many.sums(new), (*self.batches, new))

    @property
    def data(self) -> DataSet:
        """All observations as one data set."""
        layout, joined = self.many.family.layout, self.batches[0]
        for batch in self.batches[1:]:
            joined = layout.joined(joined, batch)
        return joined

    @property
    def proposal(self) -> AbstractDistribution:
        """q, from the sums alone: its cost does not grow with the number of observations."""
        return self.many.estimator.proposal(self.sums).law

    def kernel(self) -> Learned:
        """Return the kernel of all observations so far."""
        return self.many._learned(self.many.family.at(self.data), self.sums)


@jit_once
def _sums(estimator: Estimator, family: Family, observed: Observed) -> Sums:
    return sums_of(estimator, family, observed)


def _zeros(family: Family) -> DataSet:
    """A data set of zeros, the same in every session."""
    layout = family.layout
    shapes = [(2, *shape) if layout.exchangeable else shape for shape in layout.shapes]
    arrays = [np.zeros(shape) for shape in shapes]
    return arrays[0] if layout.names is None else dict(zip(layout.names, arrays, strict=True))


def _probe(family: Family) -> Target:
    """The density of fixed data, to recognise the family by."""
    return family.with_data(jax.tree.map(on_device, family.layout.padded(_zeros(family))))
