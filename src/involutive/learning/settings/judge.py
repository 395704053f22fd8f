"""Judging: how proposal and local move are composed, and thresholds of pilot chains."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.diagnostics.findings import LARGEST_RHAT, LEAST_ESS
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class JudgeSettings:
    """Sizes and thresholds of composing a kernel and measuring it on pilot chains.

    Args:
        rarely: probabilities of a local move beside a good proposal, in the order to try. [a guess]
        often: the same beside a fair one. [a guess]
        keeps: share of the proposal's effective draws that the kernel must have; with fewer, chains
            get stuck. [a guess]
        alone: effective draws per draw at which a poor proposal with local moves is kept. [a guess]
        hoped: share of the estimated effective draws that pilot chains must confirm. [a guess]
        scored: draws of the target, and as many of the proposal, on which a proposal is scored in
            one compiled call. [a guess]
        covering: batches of `scored` evaluations that the choice of tails takes. [counted]
        least_pilot: minimum steps of a pilot. [a guess]
        least_chains: minimum chains of a pilot. [a guess]
        warmup: bounds on the steps to discard; between them it is the lower bound divided by the
            effective draws per draw. [a guess]
        place_tries: draws of the proposal, or places elsewhere, per chain to start. [a guess]
        mixture_tries: the same where the proposal is a mixture, whose draws cost little. [a guess]
        largest_rhat: R-hat of chains that agree. [standard: Vehtari et al. 2021; the verdict on
            draws asks for the same]
        rhat_noise: share that is added to it of chains divided by effective draws, which R-hat
            exceeds 1 by where chains agree. [a guess]
        largest_groups: nested R-hat between two groups of starts that agree. [a guess; the verdict
            on draws asks for the same]
        groups_noise: number that is added to it divided by effective draws, which nested R-hat
            exceeds 1 by where the groups agree. [so that `least_ess` effective draws allow 1.05;
            tried by tests/learning/test_pilot.py]
        past_steps: minimum steps of a pilot that a deadline cuts short. [a guess]
        first_steps: steps after which the time of a step is known. [a guess]
        tuning_seconds: seconds left below which no local move is tuned, since it and the chains
            must be compiled. [measured by `python -m involutive.bench.budgets`]
        pilot_evaluations: evaluations after which a pilot ends once it has `pilot_least` draws per
            chain: steps of replicas are long. [a guess]
        pilot_seconds: the same for pilot chains. [measured likewise]
        pilot_longer: how much longer pilot chains take than the tuning before them. [a guess]
        import_seconds: seconds left from which ArviZ is imported before the search; with fewer, no
            pilot may be reached that needs it. [a guess; the import takes 2 s, and 24 s on a
            machine that is busy with ten processes]
        least_ess: effective draws below which ESS and R-hat are themselves uncertain. [standard:
            Vehtari et al. 2021]
        early_chance: probability of a local move in a kernel that is returned unmeasured. [a guess]
        early_points: points found below which such a kernel is only a random walk. [a guess]
        early_components: minimum components of a mixture fitted without importance weights.
            [a guess]
        early_per_mode: components per mode in it. [a guess]
        early_draws: draws of X that give the random walk its scales. [a guess]
        early_step: step of that random walk, times dim^(-1/2). [standard: 2.38/√d]
        advised_evaluations: evaluations per dimension that are advised where a budget was too
            small. [a guess]
        advised_seconds: seconds that are advised there. [a guess]
        advised_factor: factor on a budget that was too small which the advice exceeds at least.
            [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> judge = inv.JudgeSettings(least_ess=1000)
        >>> inv.LearnSettings(judge=judge).judge.least_ess
        1000
    """

    rarely: tuple[Number, ...] = (0.005, 0.05, 0.3)
    often: tuple[Number, ...] = (0.05, 0.3)
    keeps: Number = 0.75
    alone: Number = 0.4
    hoped: Number = 0.5
    scored: int = 2000
    covering: int = 13
    least_pilot: int = 70
    least_chains: int = 8
    warmup: tuple[int, int] = (20, 200)
    place_tries: int = 2
    mixture_tries: int = 8
    largest_rhat: float = LARGEST_RHAT["r_hat"]
    rhat_noise: Number = 0.5
    largest_groups: Number = LARGEST_RHAT["nested_r_hat"]
    groups_noise: Number = 12.0
    past_steps: int = 100
    first_steps: int = 10
    tuning_seconds: Number = 6.0
    pilot_evaluations: Number = 1e7
    pilot_seconds: Number = 4.0
    pilot_longer: Number = 2.0
    import_seconds: Number = 10.0
    least_ess: Number = LEAST_ESS
    early_chance: Number = 0.3
    early_points: int = 20
    early_components: int = 8
    early_per_mode: int = 2
    early_draws: int = 256
    early_step: Number = 2.38
    advised_evaluations: Number = 20_000
    advised_seconds: Number = 20
    advised_factor: Number = 2

    def __post_init__(self) -> None:
        check_not_negative(self)
