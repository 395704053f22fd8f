"""Training of a network, saved as it goes: the last network and the optimiser's state, as data."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.amortised.family import Family
from involutive.amortised.network import Estimator
from involutive.amortised.objective import Paced
from involutive.amortised.settings import AmortiseSettings
from involutive.core.errors import check
from involutive.storage.format import Arrays, PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_resumes

KIND = "amortising"
TreeT = TypeVar("TreeT")


class SavedTraining:
    """The file of one run of `amortise`; without a path it keeps nothing.

    Args:
        path: the file, or None.
        resume: whether to go on from what it holds.
        key: of the network, to recognise the run.
        settings: the sizes of the run.
        family: what is being learned.
    """

    def __init__(
        self,
        path: PathLike | None,
        resume: bool,
        key: Key[Array, ""],
        settings: AmortiseSettings,
        family: Family,
    ):
        self.path = None if path is None else as_path(path)
        self._same = {
            "key": np.asarray(jr.key_data(key)).tolist(),
            "settings": repr(settings),
            "dim": family.dim,
        }
        self._stage, self._leaves, self._done = 0, list[np.ndarray](), 0
        self._before = list[np.ndarray]()  # the network that the stage before has ended with
        self.splines: int | None = None  # couplings of the network, once they are chosen
        if resume and self.path is not None and self.path.exists():
            self._load()

    def _load(self) -> None:
        assert self.path is not None
        arrays, header = read_tensors(self.path, fall_back=True)
        check_resumes(self.path, header, KIND, self._same)
        self._stage, self._done, self.splines = header["stage"], header["done"], header["splines"]
        self._before = [arrays[name] for name in _named("before", arrays)]
        self._leaves = [arrays[name] for name in _named("now", arrays)]

    def read(self, stage: int, network: Estimator, memory: Paced) -> tuple[Estimator, Paced, int]:
        """The network, memory and number of updates to go on from in a stage."""
        if self._stage < stage:
            return network, memory, 0
        if self._stage > stage:  # this one has ended
            return self._filled(network, self._before), memory, round(float(memory.total))
        return *self._filled((network, memory), self._leaves), self._done

    def _filled(self, tree: TreeT, leaves: list[np.ndarray]) -> TreeT:
        """The tree with saved arrays in place of its own."""
        arrays, static = eqx.partition(tree, eqx.is_array)
        own, form = jax.tree.flatten(arrays)
        same = [a.shape for a in own] == [b.shape for b in leaves]
        check(same, f"{self.path} holds another network; begin anew")
        found = jax.tree.unflatten(form, [jnp.asarray(leaf) for leaf in leaves])
        return eqx.combine(found, static)

    def ended(self, network: Estimator) -> None:
        """Remember the network that a stage has ended with, beside those of the next."""
        self._before = _leaves(network)

    def write(self, stage: int, network: Estimator, memory: Paced, done: int) -> None:
        """Save where training is."""
        if self.path is None:
            return
        parts = {"before": self._before, "now": _leaves((network, memory))}
        arrays = {
            f"{name}.{i}": leaf for name, part in parts.items() for i, leaf in enumerate(part)
        }
        place = {"stage": stage, "done": done, "splines": self.splines}
        write_tensors(self.path, arrays, self._same | {"kind": KIND} | place)


def _leaves(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def _named(part: str, arrays: Arrays) -> list[str]:
    """The names of the arrays of a part, in the order they were written."""
    count = sum(name.startswith(f"{part}.") for name in arrays)
    return [f"{part}.{i}" for i in range(count)]
