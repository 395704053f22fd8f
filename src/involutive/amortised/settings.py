"""Every number that steers `amortise` and `sample_many`.

Each field states its meaning, its unit and its origin in brackets: the command that measured it, a
standard result, or "a guess" that nobody has measured.
"""

from dataclasses import dataclass

from involutive.core.errors import check, check_count
from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class AmortiseSettings:
    """Sizes of the network and lengths of its training.

    Args:
        components: Gaussian components of a proposal. [a guess]
        width: hidden units of every layer. [a guess]
        depth: hidden layers of the part that makes the proposal. [a guess]
        summary: numbers that each observation is mapped to before pooling, beside its features;
            0 pools the features alone. [a guess]
        heads: attention heads, each of which pools the `summary` numbers with weights of its own,
            beside their means; 0 pools by means alone. [a guess]
        largest_score: largest log weight of one observation under attention, in nats. [a guess]
        largest_feature: sds at which a feature is clipped; training has seen little beyond. [a
            guess]
        broadest: smallest log of a precision factor in white coordinates. [a guess]
        sharpest: largest of them. [a guess]
        splines: spline couplings, conditional on the data, between white coordinates and the
            mixture; 0 leaves them out. [a guess]
        knots: inner knots of each spline. [standard: 8 of neural spline flows]
        interval: half-width of the interval that splines bend, in white coordinates. [a guess]
        context: numbers that describe the data set to the couplings. [a guess]
        coupling_width: hidden units of each coupling. [a guess]
        trial: updates after which proposals with and without splines are compared on held-out data
            sets, and the better kept; 0 keeps the splines untried. [a guess]
        trial_share: largest share of the time left that the trial of each may take. [a guess]
        steps: updates by likelihood. [a guess]
        steps_density: updates by the log-variance objective on the density itself. [a guess]
        batch: pairs per update by likelihood. [a guess]
        batch_sets: data sets per update by log-variance. [a guess]
        draws_per_set: points of each data set at which p/q is compared. [a guess]
        rate: largest rate of Adam, which falls to zero by a cosine. [standard: 1e-3]
        density_rate: largest rate of the updates on the density, in multiples of `rate`. [a guess]
        rise: share of the updates over which the rate rises. [a guess]
        largest_gradient: norm at which gradients are clipped. [a guess]
        cover: share of the heavy-tailed cover at whose draws p/q is compared. [a guess]
        farthest: nats from the median beyond which a log ratio is left out of the loss. [a guess]
        chunk: updates between two looks at the held-out pairs. [a guess]
        segment: chunks between two checkpoints. [a guess]
        shares: shares of a budget in seconds by which drawing, training by likelihood, and training
            on the density must have ended. [a guess]
        pool: simulated pairs where the simulator is not a JAX function. [a guess]
        seen: simulated pairs from which scales are taken. [a guess]
        held: simulated pairs that are held out. [a guess]
        held_out: share of the data sets held out where there is no simulator. [a guess]
        measured: held-out data sets on which efficiency is measured. [a guess]
        weighed: draws of each from which it is measured. [a guess]
        poor: effective share of draws below which a data set is called poor. [a guess]
        least_sets: fewest data sets to train on without a simulator. [a guess]
        particles: annealed particles per data set, without a simulator. [a guess]
        kept: particles of each that training uses. [a guess]
        temperatures: annealing steps from X to the posterior. [a guess]
        moves: random-walk steps of every particle per temperature. [a guess]
        early: power of the schedule of temperatures; most are spent near X. [a guess]
        move_scales: scales of random-walk steps, tried in turn, in multiples of 2.38/√d. [a guess]
        annealed_sets: data sets annealed in one compiled call. [a guess]
        initial_sd: the sd of X where no prior is declared. [as in `learn`]

    Raises:
        InputError: if a number is out of its range.

    Example:
        >>> import involutive as inv
        >>> inv.AmortiseSettings(components=4, heads=2).heads
        2
    """

    components: int = 8
    width: int = 128
    depth: int = 3
    summary: int = 32
    heads: int = 0
    largest_score: Number = 8.0
    largest_feature: Number = 10.0
    broadest: Number = -6.0
    sharpest: Number = 12.0
    splines: int = 0
    knots: int = 8
    interval: Number = 5.0
    context: int = 32
    coupling_width: int = 64
    trial: int = 0
    trial_share: Number = 0.1
    steps: int = 20_000
    steps_density: int = 4_000
    batch: int = 256
    batch_sets: int = 64
    draws_per_set: int = 16
    rate: Number = 1e-3
    density_rate: Number = 0.3
    rise: Number = 0.02
    largest_gradient: Number = 10.0
    cover: Number = 0.1
    farthest: Number = 50.0
    chunk: int = 200
    segment: int = 25
    shares: tuple[Number, Number, Number] = (0.1, 0.8, 0.97)
    pool: int = 16_384
    seen: int = 4096
    held: int = 512
    held_out: Number = 0.15
    measured: int = 256
    weighed: int = 512
    poor: Number = 0.1
    least_sets: int = 8
    particles: int = 256
    kept: int = 64
    temperatures: int = 24
    moves: int = 3
    early: Number = 4.0
    move_scales: tuple[Number, ...] = (1.0, 0.3, 0.1)
    annealed_sets: int = 64
    initial_sd: Number = 3.0

    def __post_init__(self) -> None:
        for name in (
            "components", "width", "depth", "knots", "context", "coupling_width", "batch",
            "batch_sets", "draws_per_set", "chunk", "segment", "pool", "seen", "held", "measured",
            "weighed", "least_sets", "particles", "kept", "temperatures", "moves", "annealed_sets",
        ):  # fmt: skip
            check_count(name, getattr(self, name))
        check(
            self.components < 128,  # draws are labelled by 8-bit numbers
            f"components must be at most 127, got {self.components}",
        )
        for name in ("summary", "heads", "splines", "trial", "steps", "steps_density"):
            check_count(name, getattr(self, name), least=0)
        for name in (
            "largest_score", "largest_feature", "interval", "rate", "density_rate", "rise",
            "largest_gradient", "farthest", "early", "initial_sd",
        ):  # fmt: skip
            value = getattr(self, name)
            check(value > 0, f"{name} must be positive, got {value}")
        check(
            self.heads == 0 or self.summary > 0,
            f"heads pool the summary numbers, so that summary must be at least 1, got heads="
            f"{self.heads} and summary={self.summary}",
        )
        check(
            self.trial == 0 or self.splines > 0,
            f"trial compares proposals with and without splines; set splines, got trial="
            f"{self.trial} and splines=0",
        )
        check(0 <= self.cover < 1, f"cover must lie from 0 to below 1, got {self.cover}")
        check(0 < self.held_out < 1, f"held_out must lie between 0 and 1, got {self.held_out}")


@dataclass(frozen=True)
class ManySettings:
    """What `sample_many` does for each data set, and what its verdict asks for.

    Args:
        group: data sets per compiled call. [a guess]
        least_chains: fewest chains per data set that can be judged. [a guess]
        least_draws: fewest draws per chain that can be judged. [a guess]
        warmup: steps of a chain that are not kept; chains start from the proposal. [a guess]
        step: size of random-walk steps over √d, in sds of a component. [standard: 2.38]
        rounds: rounds in which the proposal is fitted to the data set by its own weights. [a guess]
        refining: draws per round. [a guess]
        least_variance: smallest variance of a fitted component, in multiples of the variance
            before. [a guess]
        least_weight: smallest weight of a fitted component, so that none dies out. [a guess]
        weights: draws of the proposal whose weights are measured. [a guess]
        particles: annealed particles that look for what the proposal misses. [a guess]
        temperatures: annealing steps from X to the posterior. [a guess]
        moves: random-walk steps of every particle per temperature. [a guess]
        early: power of the schedule of temperatures; most are spent near X. [a guess]
        move_scales: scales of random-walk steps, tried in turn, in multiples of 2.38/√d. [a guess]
        wide: sd of X where no prior is declared, in sds of the positions seen in training. [a
            guess]
        between: places between two components at which the density is evaluated. [a guess]
        dip: nats that the density must fall between two components of different modes. [a guess]
        lightest: smallest weight of a component that can be a mode of its own. [a guess]
        largest_r_hat: R-hat above which a data set is not trusted. [a guess]
        unseen: share of the chains' draws above every weight seen, above which it is not. [a guess]
        outside: annealed particles where the proposal is too small that are taken for a missed
            mode. [a guess]

    Raises:
        InputError: if a number is out of its range.

    Example:
        >>> import involutive as inv
        >>> inv.ManySettings(particles=256).particles
        256
    """

    group: int = 16
    least_chains: int = 4
    least_draws: int = 16
    warmup: int = 20
    step: Number = 2.38
    rounds: int = 5
    refining: int = 400
    least_variance: Number = 1e-6
    least_weight: Number = 1e-3
    weights: int = 1000
    particles: int = 128
    temperatures: int = 16
    moves: int = 2
    early: Number = 4.0
    move_scales: tuple[Number, ...] = (1.0, 0.3, 0.1)
    wide: Number = 1.5
    between: int = 9
    dip: Number = 1.0
    lightest: Number = 1e-3
    largest_r_hat: Number = 1.03
    unseen: Number = 0.05
    outside: int = 2

    def __post_init__(self) -> None:
        check_not_negative(self)
        for name in (
            "group", "least_chains", "least_draws", "refining", "weights", "particles",
            "temperatures", "moves", "between", "outside",
        ):  # fmt: skip
            check_count(name, getattr(self, name))
        for name in ("warmup", "rounds"):
            check_count(name, getattr(self, name), least=0)
