"""Every size and threshold of amortised learning, in one place."""

from dataclasses import dataclass

from involutive.core.errors import check, check_count


@dataclass(frozen=True)
class AmortiseSettings:
    """Sizes of the network and lengths of its training.

    Args:
        components: Gaussian components of a proposal; a guess.
        width: hidden units of every layer; a guess.
        depth: hidden layers of the part that makes the mixture; a guess.
        summary: numbers that the observations of a data set are pooled into, beside the means of
            their features; 0 for the means alone; a guess.
        steps: updates by likelihood.
        steps_density: updates by the log-variance objective on the density itself.
        batch: pairs per update by likelihood; a guess.
        batch_sets: data sets per update by log-variance; a guess.
        draws_per_set: points of each at which p/q is compared; a guess.
        rate: the largest rate of Adam, which falls to zero by a cosine; standard.
        pool: simulated pairs where the simulator is not a JAX function; a guess.
        particles: annealed particles of each data set, without a simulator; a guess.
        temperatures: annealing steps from X to the posterior; a guess.
        moves: random-walk steps of every particle per temperature; a guess.
        initial_sd: the sd of X where no prior is declared, as in `learn`.

    Raises:
        InputError: if a size is below 1 or the rate is not positive.

    Example:
        >>> import involutive as inv
        >>> inv.AmortiseSettings(components=4).components
        4
    """

    components: int = 8
    width: int = 128
    depth: int = 3
    summary: int = 32
    steps: int = 20_000
    steps_density: int = 4_000
    batch: int = 256
    batch_sets: int = 64
    draws_per_set: int = 16
    rate: float = 1e-3
    pool: int = 16_384
    particles: int = 256
    temperatures: int = 24
    moves: int = 3
    initial_sd: float = 3.0

    def __post_init__(self) -> None:
        for name in (
            "components", "width", "depth", "batch", "batch_sets", "draws_per_set", "pool",
            "particles", "temperatures", "moves",
        ):  # fmt: skip
            check_count(name, getattr(self, name))
        for name in ("summary", "steps", "steps_density"):
            check_count(name, getattr(self, name), least=0)
        check(self.rate > 0, f"rate must be positive, got {self.rate}")
        check(self.initial_sd > 0, f"initial_sd must be positive, got {self.initial_sd}")
