"""The settings of `learn`: the main dials, and one group of further settings per stage."""

from dataclasses import dataclass, field, fields, is_dataclass, replace

from involutive.core.errors import check
from involutive.core.types import Number
from involutive.learning.settings.bootstrap import BootstrapSettings
from involutive.learning.settings.budget import BudgetSettings
from involutive.learning.settings.checks import check_not_negative
from involutive.learning.settings.fit import FitSettings
from involutive.learning.settings.frugal import FrugalSettings
from involutive.learning.settings.judge import JudgeSettings
from involutive.learning.settings.look import LookSettings
from involutive.learning.settings.refine import RefineSettings
from involutive.learning.settings.replicas import ReplicaSettings
from involutive.learning.settings.search import SearchSettings
from involutive.learning.settings.structure import StructureSettings

GROUPS = {
    "budget": BudgetSettings,
    "search": SearchSettings,
    "fit": FitSettings,
    "structure": StructureSettings,
    "refine": RefineSettings,
    "replicas": ReplicaSettings,
    "judge": JudgeSettings,
    "look": LookSettings,
    "bootstrap": BootstrapSettings,
    "frugal": FrugalSettings,
}


@dataclass(frozen=True, repr=False)
class LearnSettings:
    """Sizes and thresholds of learning: search, fit, rounds and judging.

    The fields with plain numbers are the main settings; the others are in one group per stage.

    Args:
        initial_sd: sd of the default initial distribution X = N(0, sd² I). [as in the benchmark]
        climbers: points that climb the density. [measured by `involutive experiment recipe`]
        search_draws: draws of X among which the best places to climb from are chosen. [recipe]
        particles: particles of annealing. [recipe]
        widths: multiples of X's width that climbs start from. [a guess; wide and narrow modes]
        growth: factors by which the reached region must have outgrown X before another pass of
            climbs starts around it; one pass per entry. [a guess]
        screen_steps: ascent steps after which starting places are compared. [a guess]
        climb_steps: maximum ascent steps per climb. [a guess]
        spread_steps: MCMC moves that spread a climber over its mode. [a guess]
        temperatures: maximum temperatures of annealing. [a guess]
        anneal_ess: share of particles that stay effective from one temperature to the next.
            [standard: 0.5 to 0.9]
        anneal_moves: MCMC moves per temperature. [a guess]
        resample_ess: effective draws of X above which annealing is skipped. [a guess]
        spike_nats: a mode whose log mass lies so far below the total is a spike without mass.
            [a guess]
        second_search: share of `climbers` and `particles` in the second search, which looks for
            what the first one missed. [a guess]
        em_operations: arithmetic operations per iteration of EM that bound the number of mixture
            components. [measured by `involutive experiment recipe`]
        components: numbers of mixture components to try, or None to follow the modes found.
            [the user's choice]
        fit_draws: importance-weighted draws that a mixture is fitted to at once. [recipe]
        defensive: shares of the importance distribution: q, q stretched, one wide normal over X.
            [standard: defensive importance sampling, Hesterberg 1995]
        wide_share: share of proposals from the wide normal over X. [a guess]
        em_steps: iterations of EM per batch of weighted draws. [a guess]
        most_batches: maximum batches of weighted draws in the last fit. [a guess]
        good_enough: effective draws per draw at which nothing more is added. [a guess]
        suffices: effective draws per draw of a mixture from which no structure is tried. [recipe]
        trusts_weights: effective draws per draw above which importance weights choose components.
            [a guess]
        poor: effective draws per draw below which a local move precedes every proposal. [recipe]
        missed: share of the points found that a proposal may leave uncovered. [a guess]
        tails: candidate shares of proposals drawn from components stretched by `tail_stretch`.
            [a guess]
        tail_stretch: factor on the covariances of those components. [a guess]
        couplings_below: effective draws per draw below which couplings are trained. [recipe]
        tune_steps: updates of the log-variance objective. [recipe]
        coupling_steps: updates of the likelihood objective for couplings. [recipe]
        coupling_layers: affine couplings in the cascade. [a guess]
        coupling_width: units in a hidden layer of a coupling. [a guess]
        batch: points per update. [a guess]
        training_draws: draws that a training works on. [a guess]
        learning_rate: initial rate of Adam when a mixture is tuned; it falls along a cosine to 0.
            [a guess]
        coupling_rate: initial rate of Adam for couplings; a quarter of it when they are tuned.
            [a guess]
        round_chains: chains that refresh the training draws. [recipe]
        round_steps: steps of those chains per round; the second half is kept. [recipe]
        most_rounds: maximum number of rounds. [recipe]
        round_shorter: factor by which a round's training is shorter than the last one's. [a guess]
        replicas_below: effective draws per draw below which replicas are tried. [a guess]
        pilot_chains: chains that measure the learned kernel. [as many as `sample` runs]
        pilot_draws: draws per pilot chain. [a guess]
        pilot_least: minimum draws per pilot chain, whatever the budget. [a guess]
        budget: how a budget is divided among the stages.
        search: draws of X, climbs, annealing, and the second search.
        fit: EM, importance weights, and training on draws.
        structure: products, hierarchies, symmetries and heavy tails.
        refine: rounds of chains and training, and the local move.
        replicas: the ladder of replicas.
        judge: composing, and thresholds of pilot chains.
        look: the final search for missed mass.
        bootstrap: sizes of `strategy="bootstrap"`.
        frugal: learning where evaluations are expensive.

    Raises:
        InputError: if a number is negative, or a group is not of its class.

    Example:
        >>> import involutive as inv
        >>> settings = inv.LearnSettings(initial_sd=5.0, fit=inv.FitSettings(searches=2))
        >>> settings.initial_sd, settings.fit.searches
        (5.0, 2)
    """

    initial_sd: Number = 3.0
    climbers: int = 1024
    search_draws: int = 16_384
    particles: int = 2000
    widths: tuple[Number, ...] = (0.05, 0.3, 1.0, 2.0, 4.0)
    growth: tuple[Number, ...] = (1.4, 1.1, 1.1, 1.1, 1.1)
    screen_steps: int = 12
    climb_steps: int = 200
    spread_steps: int = 60
    temperatures: int = 100
    anneal_ess: Number = 0.7
    anneal_moves: int = 5
    resample_ess: Number = 500.0
    spike_nats: Number = 20.0
    second_search: Number = 0.125
    em_operations: Number = 2e8
    components: tuple[int, ...] | None = None
    fit_draws: int = 32_768
    defensive: tuple[float, float, float] = (0.85, 0.12, 0.03)
    wide_share: Number = 0.003
    em_steps: int = 6
    most_batches: int = 12
    good_enough: Number = 0.97
    suffices: Number = 0.75
    trusts_weights: Number = 0.3
    poor: Number = 0.5
    missed: Number = 0.05
    tails: tuple[Number, ...] = (0.0, 0.02, 0.06, 0.15)
    tail_stretch: Number = 3.0
    couplings_below: Number = 0.6
    tune_steps: int = 1500
    coupling_steps: int = 2000
    coupling_layers: int = 8
    coupling_width: int = 32
    batch: int = 512
    training_draws: int = 20_000
    learning_rate: Number = 1e-2
    coupling_rate: Number = 1e-2
    round_chains: int = 512
    round_steps: int = 80
    most_rounds: int = 6
    round_shorter: Number = 3.0
    replicas_below: Number = 0.1
    pilot_chains: int = 64
    pilot_draws: int = 1000
    pilot_least: int = 200
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    structure: StructureSettings = field(default_factory=StructureSettings)
    refine: RefineSettings = field(default_factory=RefineSettings)
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    look: LookSettings = field(default_factory=LookSettings)
    bootstrap: BootstrapSettings = field(default_factory=BootstrapSettings)
    frugal: FrugalSettings = field(default_factory=FrugalSettings)

    def __post_init__(self) -> None:
        check_not_negative(self)
        for name, kind in GROUPS.items():
            check(
                isinstance(getattr(self, name), kind),
                f"{name} of LearnSettings must be {kind.__name__}(...), "
                f"got {type(getattr(self, name)).__name__}",
            )

    def __repr__(self) -> str:
        """The dials, and the groups that differ from their defaults.

        Checkpoints compare this text, and files from before there were groups must still resume.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        shown = [
            f"{name}={value!r}"
            for name, value in values.items()
            if not is_dataclass(value) or value != type(value)()
        ]
        return f"LearnSettings({', '.join(shown)})"

    def scaled(self, search: Number, rounds: Number) -> "LearnSettings":
        """The settings with a smaller search and shorter rounds; factors are at most one."""
        search, rounds, least = min(search, 1.0), min(rounds, 1.0), self.budget
        slowly = rounds**least.rounds_power

        def smaller(size: Number, factor: Number, least: int) -> int:
            return max(int(size * factor), min(least, int(size)))

        return replace(
            self,
            climbers=smaller(self.climbers, search, least.least_climbers),
            search_draws=smaller(self.search_draws, search, least.least_search_draws),
            particles=smaller(self.particles, search, least.least_particles),
            fit_draws=smaller(self.fit_draws, search, least.least_fit_draws),
            round_chains=smaller(self.round_chains, rounds, least.least_round_chains),
            round_steps=smaller(self.round_steps, slowly, least.least_round_steps),
            most_rounds=smaller(self.most_rounds, slowly, least.least_rounds),
            tune_steps=smaller(self.tune_steps, rounds, least.least_updates),
            coupling_steps=smaller(self.coupling_steps, rounds, least.least_updates),
        )

    def brief(self, couplings_below: Number) -> "LearnSettings":
        """The settings with shorter trainings, for a round that another round follows."""
        return replace(
            self,
            tune_steps=max(int(self.tune_steps / self.round_shorter), 1),
            coupling_steps=max(int(self.coupling_steps / self.round_shorter), 1),
            couplings_below=couplings_below,
        )
