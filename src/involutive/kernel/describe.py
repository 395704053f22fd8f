"""A kernel in words: its target, and its moves."""

from typing import Protocol, runtime_checkable

from involutive.targets.target import Target


@runtime_checkable
class Described(Protocol):
    """A kernel, of which descriptions only need the target."""

    target: Target


def parts_of(kernel: object) -> list[tuple[str, str]]:
    """The moves of a kernel, each with the share of steps that make it."""
    inner = getattr(kernel, "kernel", kernel)
    several = getattr(inner, "kernels", None)
    if several is None:
        return [("every step", move_of(inner))]
    chances = getattr(inner, "probabilities", None)
    if chances is None:
        return [("every step", move_of(part)) for part in several]
    return [
        (f"{100 * float(chance):.3g}% of steps", move_of(part))
        for chance, part in zip(chances, several, strict=True)
    ]


def move_of(kernel: object) -> str:
    """One move: its involution and the distribution of its auxiliary vector."""
    involution = getattr(kernel, "involution", None)
    if involution is None:
        replicas = getattr(kernel, "num_replicas", None)
        name = type(kernel).__name__
        return name if replicas is None else f"{name} ({replicas} replicas)"
    auxiliary = type(getattr(kernel, "auxiliary", None)).__name__
    return f"{type(involution).__name__}, auxiliary {auxiliary}"


def described(kernel: Described) -> str:
    """One line that describes a kernel: `Mixture(mog6: 10% of steps RandomWalk, …)`."""
    moves = "; ".join(f"{chance} {move}" for chance, move in parts_of(kernel))
    return f"{type(kernel).__name__}({kernel.target.name}: {moves})"
