"""How large the search for modes and the rounds of learning are."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Sizes of the search and of the rounds.

    Attributes:
        climbers: points that climb.
        search: points of X that are looked at for the best places to climb from.
        particles: particles of the annealed start.
        draws: the most weighted draws that a mixture is fitted to at once.
        chains: chains that refresh the training draws.
        steps: steps they make a round; the second half is kept.
        rounds: the most rounds.
    """

    climbers: int = 1024
    search: int = 16_384
    particles: int = 2000
    draws: int = 32_768
    chains: int = 512
    steps: int = 80
    rounds: int = 6

    def scaled(self, search: float, rounds: float) -> "Effort":
        """The same with a search and with rounds of other sizes."""
        smaller = lambda size, scale, least: max(int(size * min(scale, 1.0)), least)  # noqa: E731
        return Effort(
            climbers=smaller(self.climbers, search, 64),
            search=smaller(self.search, search, 256),
            particles=smaller(self.particles, search, 256),
            draws=smaller(self.draws, search, 4096),
            chains=smaller(self.chains, rounds, 64),
            steps=max(int(self.steps * rounds**0.5), 20),
            rounds=max(int(self.rounds * rounds**0.5), 1),
        )
