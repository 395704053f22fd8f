"""Learning saved between rounds: data only, written all or nothing."""

import warnings
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

import involutive.storage.known  # noqa: F401  registers what files may name
from involutive.core.errors import check
from involutive.learning.fit.recipe import Trained
from involutive.learning.refine.rounds import Learner, Round
from involutive.storage.codec import Decoder, Encoder
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_kind
from involutive.targets.fingerprint import difference, fingerprint

KIND = "learning"
FIGURES = ("acceptance", "ess", "evaluations", "components", "history")


class SavedRounds:
    """The file of one run of `learn`.

    Args:
        path: the file.
        learner: what is being learned, with its sizes.
        root: the key of the run.
        resume: whether to go on from what the file holds.
    """

    def __init__(self, path: PathLike, learner: Learner, root: Key[Array, ""], resume: bool):
        self.path, self.learner, self.resume = as_path(path), learner, resume
        self.same = {
            "key": np.asarray(jr.key_data(root)).tolist(),
            "effort": vars(learner.effort) | {},
            "dim": learner.target.dim,
        }

    def write(self, at: Round) -> None:
        """Save where learning stands."""
        encode = Encoder()
        tree = encode(at.trained.kernel)
        numbers = {name: getattr(at.trained, name) for name in FIGURES}
        header = self.same | {
            "kind": KIND,
            "tree": tree,
            "trained": numbers,
            "number": at.number,
            "done": at.done,
            "spent": self.learner.meter.evaluations,
            "fingerprint": fingerprint(self.learner.target),
        }
        rounds = {"states": at.states, "draws": at.draws, "fresh": at.fresh}
        rounds["key"] = np.asarray(jr.key_data(at.key))
        named = {f"round.{name}": array for name, array in rounds.items()}
        write_tensors(self.path, encode.arrays | named, header)

    def read(self) -> Round | None:
        """What the file holds, or None if there is none or learning begins anew."""
        if not self.resume or not self.path.exists():
            return None
        arrays, header = read_tensors(self.path, fall_back=True)
        check_kind(self.path, header, KIND)
        for name, value in self.same.items():
            check(
                header.get(name) == value,
                f"{self.path} was saved by a run with {name}={header.get(name)}, got {value}; "
                "resume with the same arguments, or choose another file",
            )
        target = self.learner.target
        found = difference(header.get("fingerprint"), fingerprint(target))
        if found is not None:
            warnings.warn(f"{self.path} was saved for another density: {found}", stacklevel=3)
        self.learner.meter.spend(header["spent"])
        return self._round(arrays, header)

    def _round(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> Round:
        kernel = Decoder(arrays, self.learner.target)(header["tree"])
        empty = Trained(kernel, 0.0, 0.0, [])
        trained = replace(empty, **header["trained"])
        states, draws, fresh = (arrays[f"round.{name}"] for name in ("states", "draws", "fresh"))
        key = jr.wrap_key_data(jnp.asarray(arrays["round.key"]))
        return Round(header["number"], trained, states, draws, fresh, key, header["done"])
