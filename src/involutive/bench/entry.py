"""One target of a suite, with what the judge knows of it.

The density is written as its source writes it, constants included, so that `log_z` means the same
there and here. Every sampler starts from X = N(0, spread² I), which is also the prior of samplers
that need one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from involutive.core.errors import check
from involutive.targets.target import Target

SPREAD = 3.0  # sd of the initial distribution in every coordinate, where a target names no other
EXACT_DRAWS = 200_000  # exact draws that a reference rests on
EXACT_NUMBERS = 8_000_000  # at most as many numbers: fewer draws in many dimensions


@dataclass(frozen=True)
class Entry:
    """A target of a suite.

    Attributes:
        make: builds the target; its argument is the folder of data files, or None.
        spread: sd of X, the initial distribution of every sampler.
        log_z: the exact log integral of the density, or the best known value; None if unknown.
        multimodal: whether it has separated modes.
        heavy_tails: whether means do not settle, so that they are not compared.
        exact: exact draws behind the reference, at most.
        files: names of data files, one of which must be in the folder.
        stored: name of a long run that ships with the package, where one does.
        reference: whether a long run of NUTS can stand in for exact draws.
        symmetric: whether x and -x have the same density and both belong in the reference.
        centred: particles per configuration whose centre of mass is removed before W2; 0 for none.
        clip: largest absolute coordinate before W2, where the source clips; 0 for none.
        protocol: in words, how our protocol differs from the published one.
    """

    make: Callable[[Path | None], Target]
    spread: float = SPREAD
    log_z: float | None = None
    multimodal: bool = False
    heavy_tails: bool = False
    exact: int = EXACT_DRAWS
    files: tuple[str, ...] = ()
    stored: str = ""
    reference: bool = True
    symmetric: bool = False
    centred: int = 0
    clip: float = 0.0
    protocol: str = ""

    def missing(self, data: Path | None) -> str:
        """In words which file is missing, or nothing."""
        if not self.files or (data is not None and any((data / n).is_file() for n in self.files)):
            return ""
        return f"needs {' or '.join(self.files)} in --data DIR"


def data_file(data: Path | None, *names: str) -> Path:
    """The first of these files that the data folder has."""
    found = [] if data is None else [data / name for name in names if (data / name).is_file()]
    check(found, f"this target needs {' or '.join(names)}; pass --data DIR with it, got {data}")
    return found[0]
