"""Saved proposals: a kernel as data, for use with a target given anew.

A file holds the description of the kernel's modules, their arrays and a fingerprint of the target
it was made for: its log density at fixed points. It never holds the target itself, nor code.
"""

import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import involutive.storage.known  # noqa: F401  registers what files may name
from involutive._version import __version__
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.kernel.kernel import AbstractKernel
from involutive.storage.codec import Decoder, Described, Encoder
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.targets.fingerprint import difference, fingerprint
from involutive.targets.target import Target

if TYPE_CHECKING:
    from involutive.learning.outcome import Learned

KernelT = TypeVar("KernelT", bound=AbstractKernel)


@runtime_checkable
class SavesItself(Protocol):
    """What writes its own file: the kernel of a family."""

    def save(self, path: PathLike) -> None:
        """Write the file."""
        ...


LoadedT = TypeVar("LoadedT", covariant=True)


@runtime_checkable
class LoadsKernels(Protocol[LoadedT]):
    """What a kernel is loaded for, other than a target: a family."""

    def load_kernel(self, path: PathLike) -> LoadedT:
        """Read the file."""
        ...


def save(path: PathLike, kernel: AbstractKernel | SavesItself) -> None:
    """Save a kernel, without its target, as data.

    Args:
        path: the file to write; its previous content is kept as `path.bak`.
        kernel: any kernel of registered classes; `register` adds your own. Or the kernel of a
            family, from `amortise`.

    Raises:
        InputError: if the kernel holds a class or function that is not registered, or the file
            cannot be written.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.hmc(inv.targets.gaussian(2), step_size=0.2, num_steps=5)
        >>> inv.save("proposal.inv", kernel)
        >>> type(inv.load("proposal.inv", kernel.target)).__name__
        'Kernel'
    """
    if isinstance(kernel, SavesItself):
        kernel.save(path)
        return
    check(isinstance(kernel, AbstractKernel), f"save takes a kernel, got {type(kernel).__name__}")
    encode = Encoder()
    tree = encode(kernel)
    header = {
        "kind": "kernel",
        "involutive": __version__,
        "tree": tree,
        "dim": kernel.target.dim,
        "dtype": str(jnp.result_type(float)),
        "target": kernel.target.name,
        "fingerprint": _one_fingerprint(encode.targets),
    }
    write_tensors(path, encode.arrays, header)


@overload
def load(path: PathLike, target: Target) -> "Learned": ...


@overload
def load(path: PathLike, target: Target, kind: type[KernelT]) -> KernelT: ...


@overload
def load(path: PathLike, target: LoadsKernels[LoadedT]) -> LoadedT: ...


def load(
    path: PathLike,
    target: Target | LoadsKernels[object],
    kind: type[AbstractKernel] | None = None,
) -> object:
    """Load a kernel saved by `save`, for the target given.

    Loading runs no code from the file and imports nothing it names. If you load a kernel with
    another target than it was learned for, it leaves that target invariant, but may mix badly: a
    warning says so.

    Args:
        path: the file.
        target: the density to sample, or the family of a kernel from `amortise`.
        kind: the class the kernel must have, which type checkers then know. Without it any kernel
            is loaded, and type checkers take it for what `learn` returns, a `Learned`.

    Returns:
        The kernel, of the class it was saved with.

    Raises:
        InputError: if the file is missing, damaged, of another dimension, names an unregistered
            class, or holds no kernel of the class `kind`.

    Example:
        >>> import involutive as inv
        >>> target = inv.targets.gaussian(2)
        >>> inv.save("proposal.inv", inv.random_walk(target, 0.5))
        >>> inv.load("proposal.inv", target, inv.Kernel).target is target
        True
    """
    if isinstance(target, LoadsKernels):
        return target.load_kernel(path)
    if not isinstance(target, Target):
        raise InputError(f"load needs the target to sample, got {type(target).__name__}")
    file = as_path(path)
    arrays, header = read_tensors(file)
    check_kind(file, header, "kernel")
    check(
        header.get("dim") == target.dim,
        f"{file} was saved for a target of dimension {header.get('dim')}, got {target.dim} "
        f"({target.name}); load it with the target it was learned for",
    )
    try:
        kernel = Decoder(arrays, target)(header.get("tree"))
        check(isinstance(kernel, AbstractKernel), "it describes no kernel")
        _trace(kernel)
    except Exception as error:  # whatever a strange description breaks
        line = first_line(error)
        raise InputError(f"{file} does not describe a kernel that works: {line}") from error
    if kind is not None:
        found = type(kernel).__name__
        check(isinstance(kernel, kind), f"{file} must hold a {kind.__name__}, got a {found}")
    found = difference(header.get("fingerprint"), fingerprint(target))
    return kernel if found is None else _on_another(kernel, file, header, found)


def check_kind(path: PathLike, header: dict[str, Any], kind: str) -> None:
    """Refuse a file that holds something else."""
    found = str(header.get("kind"))[:40]
    check(found == kind, f"{path} must hold a {kind}, got a file of kind {found}")


def check_resumes(
    path: PathLike, header: dict[str, Any], kind: str, arguments: dict[str, Any]
) -> None:
    """Refuse a file that holds something else, or that a run with other arguments has saved."""
    check_kind(path, header, kind)
    for name, value in arguments.items():
        check(
            header.get(name) == value,
            f"{path} was saved by a run with {name}={header.get(name)}, got {value}; "
            "resume with the same arguments, or choose another file",
        )


def describe(module: object) -> tuple[Described, dict[str, np.ndarray]]:
    """A module as JSON and arrays, unregistered objects by type: to tell two of them apart."""
    encode = Encoder(strict=False)
    return encode(module), encode.arrays


def _one_fingerprint(targets: list[Target]) -> list[float]:
    different = {id(target): target for target in targets}
    prints = [fingerprint(target) for target in different.values()]
    for other in prints[1:]:
        found = difference(prints[0], other)
        check(
            found is None,
            f"a kernel must hold one density to be saved, got two ({found}); save its parts apart",
        )
    return prints[0]


def _trace(kernel: AbstractKernel) -> None:
    """Trace one step, without running it, to see that the parts fit together."""
    position = jax.ShapeDtypeStruct((kernel.target.dim,), jnp.result_type(float))
    jax.eval_shape(lambda x: kernel.step(jr.key(0), kernel.init(x)), position)


def _on_another(
    kernel: AbstractKernel, path: PathLike, header: dict[str, Any], found: str
) -> AbstractKernel:
    """Warn that the density is another one, and mark what was measured on the one before."""
    then, now = header.get("target"), kernel.target.name
    warnings.warn(
        f"{path} was saved for another density ({then}) than {now}: "
        f"{found}; chains leave the new density invariant, but the proposal may fit badly",
        stacklevel=3,
    )
    outcome = getattr(kernel, "outcome", None)
    if not dataclasses.is_dataclass(outcome) or isinstance(outcome, type):
        return kernel
    advice = (
        f"these metrics are of the density it was learned for ({then}), not of this one; "
        "inv.sample(...).summary() measures it anew"
    )
    stale = dataclasses.replace(outcome, converged=False, advice=advice)
    return dataclasses.replace(kernel, outcome=stale)  # type: ignore[call-arg]
