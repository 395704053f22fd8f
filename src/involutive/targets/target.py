"""Targets: an unnormalised log density on R^dim, with exact draws where they are known.

A target is what every sampler here needs and nothing more: `log_density`, a function of one flat
vector. Positions of another shape (a dict of arrays) are flattened inside and restored outside.
Declared parameters (`parameters.py`) are mapped to their supports inside, with the log-Jacobian,
and reported as declared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Int, Key, PyTree

from involutive._xla.lapack import one_by_one
from involutive.core.errors import check
from involutive.core.types import Number
from involutive.core.views import view
from involutive.targets.black_box import BlackBox, OnHost, box_of, over_rows
from involutive.targets.by_name import Arguments
from involutive.targets.executors import Executor
from involutive.targets.flat import flattened, of_vector
from involutive.targets.labels import Labels, check_labels, labels_of
from involutive.targets.observed import Observed, pointwise
from involutive.targets.parameters import HasPriors, Parameters, as_parameters
from involutive.targets.pointwise import PointwiseOnHost
from involutive.targets.positions import Form
from involutive.targets.prior_transform import cube
from involutive.targets.validation import check_constrain, check_program

Vector = Float[Array, " dim"]
LogDensity = Callable[..., Any]
Sampler = Callable[[Key[Array, ""], int], Float[Array, "n dim"]]


class Modes(NamedTuple):
    """A partition of space into cells: `label(x)` names the cell, `weights` its exact mass."""

    label: Callable[[Vector], Int[Array, ""]]
    weights: tuple[float, ...]


class Target(eqx.Module):
    """An unnormalised log density on R^dim.

    Args:
        log_density: maps one vector of shape `(dim,)` to a scalar (or, with `like`, a pytree
            shaped as `like`). Constants may be dropped; `-inf` means outside the support.
        dim: the number of coordinates, or `Parameters`: the density then takes constrained values
            by name, `log_density(A=…, sigma=…)`, and the log-Jacobians are added. Parameters with
            priors make it the log likelihood; the log priors are added too.
        like: an example position, for densities of a pytree; `dim` is then counted from it, and
            its keys keep their order everywhere.
        name: shown in reports.
        sample: `(key, n) -> (n, dim)` exact draws, where known.
        modes: a partition with exact masses, where known.
        constrain: maps a position, as `log_density` receives it, to a dict of named arrays, as
            results are reported.
        dims, coords: ArviZ's names for the axes of the constrained variables.
        extent: a length that covers the bulk, for pictures.
        periods: the ends of the circle of every constrained variable that is an angle.
        log_likelihood: the pointwise log likelihood, called as the density is: one number per
            observation, as an array or as a dict of arrays. It is not sampled from; ArviZ's `loo`
            and `compare` need it.
        observed: the pointwise log likelihood and the data of a model; adapters of other
            libraries set it.
        arguments: how declared values are passed: "names", "dict" or "vector"; by default by name
            if the density's arguments are the parameters, and as one dict if it has one argument.
        backend: "jax", or "numpy" for any Python function: it gets NumPy values, is never traced,
            and needs no gradient.
        vectorized: whether a NumPy function takes rows of points and returns one number per row.
        value_and_grad: a NumPy function of one point that returns the value and its gradient.
        executor: a pool to spread the calls of a NumPy function over: of `concurrent.futures`,
            `multiprocessing`, Dask, `mpi4py.futures`, or anything with `map`.

    Attributes:
        parameters: the declared parameters, or None.
        initial: X, the distribution of the flat vector to start from; None if the target has none.
            With priors it is the prior.
        black_box: the NumPy function, its calls, seconds and failures; None for JAX densities.

    Raises:
        InputError: if the density does not fit its dimension or its parameters.

    Example:
        >>> import involutive as inv
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 5), sigma=inv.HalfNormal(2))
        >>> target = inv.Target(lambda mu, sigma: -0.5 * ((1.3 - mu) / sigma) ** 2, parameters)
        >>> target.dim, target.initial.shape
        (2, (2,))
    """

    log_density: LogDensity
    dim: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    sample: Sampler | None = eqx.field(static=True)
    modes: Modes | None = eqx.field(static=True)
    constrain: Callable[[Vector], dict[str, Array]] = eqx.field(static=True)
    extent: float | None = eqx.field(static=True)
    form: Form | None = eqx.field(static=True)
    labels: Labels = eqx.field(static=True)
    parameters: Parameters | None = eqx.field(static=True)
    initial: AbstractDistribution | None
    black_box: BlackBox | None = eqx.field(static=True)
    observed: Observed | None = eqx.field(static=True)

    def __init__(
        self,
        log_density: LogDensity,
        dim: int | Parameters | Mapping[str, Any] | HasPriors | None = None,
        *,
        like: PyTree = None,
        name: str | None = None,
        sample: Sampler | None = None,
        modes: Modes | None = None,
        constrain: Callable[[Any], dict[str, Array]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Any] | None = None,
        extent: float | None = None,
        periods: Mapping[str, tuple[Number, Number]] | None = None,
        log_likelihood: Callable[..., Any] | None = None,
        observed: Observed | None = None,
        arguments: Arguments | None = None,
        backend: str = "jax",
        vectorized: bool = False,
        value_and_grad: Callable[..., Any] | None = None,
        executor: Executor | None = None,
    ):
        _check_function("log_density", log_density, "a function of one vector")
        size = as_parameters(dim)
        self.parameters = declared = size if isinstance(size, Parameters) else None
        self.name = name or _name_of(log_density)
        options = {"vectorized": vectorized, "executor": executor, "value_and_grad": value_and_grad}
        self.black_box = box_of(log_density, size, like, backend, arguments, self.name, options)
        flat = flattened(log_density, size, like, arguments, constrain)
        self.dim, self.form, self.constrain = flat.dim, flat.form, flat.constrain
        self.initial = None if declared is None else declared.initial()
        density = flat.log_density if self.black_box is None else OnHost(self.black_box, declared)
        likelihood = _pointwise(log_likelihood, declared, self.form, arguments, self.black_box)
        self.observed = observed if likelihood is None else likelihood
        self.sample, self.modes, self.extent = sample, modes, extent
        self.labels = labels_of(declared, dims, coords, periods)
        check_program(density, self.dim, self.coordinate, flat.takes)
        shapes = check_constrain(self.constrain, self.dim)
        check_labels(self.labels, shapes)
        self.log_density = one_by_one(density, self.dim)

    @classmethod
    def from_prior_transform(
        cls,
        log_likelihood: Callable[..., Any],
        prior_transform: Callable[..., Any],
        dim: int,
        names: Sequence[str] | None = None,
        *,
        backend: str = "numpy",
        periodic: Sequence[int] | None = None,
        reflective: Sequence[int] | None = None,
        vectorized: bool = False,
        executor: Executor | None = None,
        name: str | None = None,
    ) -> "Target":
        """Make a target of functions written for dynesty, UltraNest or nautilus.

        With `u = Φ(z)`, the density of z is `likelihood(prior_transform(u)) N(z; 0, I)`; X is
        N(0, I), and results are the values that `prior_transform` returns.

        Args:
            log_likelihood: maps one vector of parameters to the log likelihood.
            prior_transform: maps a point of the unit cube to the parameters.
            dim: the number of coordinates of the cube.
            names: the names of the parameters; `theta_0`, … by default.
            backend: "numpy", or "jax" for functions of JAX operations.
            periodic: indices of periodic coordinates, as in dynesty.
            reflective: accepted for compatibility with dynesty; it has no effect.
            vectorized: whether both functions take rows of points.
            executor: a pool for the calls of the likelihood, as in `Target`.
            name: shown in reports.

        Returns:
            The target.

        Raises:
            InputError: if the functions, names or indices do not fit.

        Example:
            >>> import involutive as inv
            >>> def log_likelihood(theta): return -0.5 * float(theta @ theta)
            >>> def prior_transform(u): return 10 * u - 5
            >>> target = inv.Target.from_prior_transform(log_likelihood, prior_transform, 2)
            >>> target.dim, target.has_gradient
            (2, False)
        """
        made = cube(
            log_likelihood, prior_transform, dim, names=names, backend=backend, periodic=periodic,
            reflective=reflective, vectorized=vectorized,
        )  # fmt: skip
        pool = {"vectorized": vectorized, "executor": executor} if backend == "numpy" else {}
        return cls(
            made.log_density, made.parameters, constrain=made.constrain, periods=made.periods,
            arguments="vector", backend=backend,
            name=name or _name_of(log_likelihood), **pool,
        )  # fmt: skip

    @property
    def prior(self) -> AbstractDistribution | None:
        """X where it is the prior: every declared parameter has one; else None."""
        have = self.parameters is not None and self.parameters.have_priors
        return self.initial if have else None

    @property
    def has_gradient(self) -> bool:
        """Whether the density can be differentiated: not a NumPy function without its gradient."""
        return self.black_box is None or self.black_box.has_gradient

    def evaluate_rows(self, points: np.ndarray) -> np.ndarray:
        """Return the log density at every row of `(n, dim)`, on the host.

        A NumPy function is called for these rows alone, through its executor if it has one.
        """
        if isinstance(self.log_density, OnHost):
            return self.log_density.rows(points)
        points = np.asarray(points, jnp.result_type(float))
        return np.asarray(over_rows(self.log_density, points))

    def flatten(self, position: PyTree) -> Vector:
        """Return a position, flat, shaped as `like`, or declared values by name, as one vector.

        Raises:
            InputError: if the position does not hold `dim` numbers, or its names and shapes are not
                those declared.
        """
        if self.parameters is not None and isinstance(position, Mapping):
            return self.parameters.unconstrain(position)
        form = self.form or Form(position)
        flat = form.flatten(position)
        check(
            flat.shape == (self.dim,),
            f"a position must hold {self.dim} numbers (dim of {self.name}), got {flat.size}",
        )
        return flat

    def restore(self, x: Vector) -> PyTree:
        """Return a flat vector as the density receives it: shaped as `like`, if that was given."""
        return x if self.form is None else self.form.restore(x)

    def coordinate(self, i: int) -> str:
        """The name of a flat coordinate: `x[2]`, or that of its parameter or place in `like`."""
        if self.parameters is not None:
            return self.parameters.coordinate(i)
        return f"x[{i}]" if self.form is None else self.form.coordinate(i)

    @property
    def has_prior(self) -> bool:
        """Whether a prior was declared or is part of a model, so that log Z is of the data."""
        return self.prior is not None or (
            self.observed is not None and self.observed.prior is not None
        )

    def facts(self) -> dict[str, str]:
        """What is known of the target, in words."""
        facts = {"coordinates": str(self.dim)}
        if self.parameters is not None:
            facts["parameters"] = repr(self.parameters)
        if self.black_box is not None:
            facts["density"] = "a Python function" + (" with its gradient" * self.has_gradient)
        if self.prior is not None:
            facts["starts from"] = "the prior"
        if self.sample is not None:
            facts["exact draws"] = "known"
        if self.modes is not None:
            facts["modes"] = f"{len(self.modes.weights)}, with known weights"
        return facts

    def __repr__(self) -> str:
        return (
            f"Target({self.name}: " + "; ".join(f"{k} {v}" for k, v in self.facts().items()) + ")"
        )

    def _repr_html_(self) -> str:
        return view("target_html")(self)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "target").strip("<>")


def _pointwise(
    log_likelihood: Callable[..., PyTree] | None,
    parameters: Parameters | None,
    form: Form | None,
    arguments: Arguments | None,
    box: BlackBox | None,
) -> Observed | None:
    if log_likelihood is None:
        return None
    _check_function("log_likelihood", log_likelihood, "a function")
    if box is not None:
        many = box.density.vectorized
        return Observed(PointwiseOnHost(log_likelihood, parameters, arguments, many))
    return pointwise(of_vector(log_likelihood, parameters, form, arguments))


def _check_function(name: str, value: object, what: str) -> None:
    check(callable(value), f"{name} must be {what}, got {type(value).__name__}")
