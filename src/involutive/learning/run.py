"""One run of the pipeline: where each stage leaves its result, and shows that it began."""

from dataclasses import dataclass, replace
from typing import TypeVar

from involutive.learning.checkpoint import SavedStages
from involutive.learning.problem import Problem
from involutive.learning.stages import Fitted, Found
from involutive.sampling.progress import Progress

STAGES = ("finding modes", "fitting a proposal", "refining the proposal", "measuring the kernel")
StageT = TypeVar("StageT", Found, Fitted)


@dataclass
class Run:
    """The newest result of a run, from which a run that is cut short makes its kernel.

    Attributes:
        problem: the density, with sizes.
        saved: the checkpoint.
        bar: shows progress.
        last: the newest result; None before the search has ended.
    """

    problem: Problem
    saved: SavedStages
    bar: Progress
    last: Found | Fitted | None

    @property
    def found(self) -> Found | None:
        """The search's result, None before the search has ended."""
        return self.last.found if isinstance(self.last, Fitted) else self.last

    def for_pass(self) -> "Run":
        """The same run with the keys of the pass that its newest result belongs to."""
        number = 0 if self.found is None else self.found.passes
        return replace(self, problem=self.problem.for_pass(number))

    def begin(self, number: int) -> None:
        """Show that stage `number`, counted from 1, begins."""
        self.bar.stage(STAGES[number - 1], number, len(STAGES))

    def keep(self, result: StageT) -> StageT:
        """Make a stage's result the newest one, save it and return it."""
        return self.remember(self.saved.write(result))

    def remember(self, result: StageT) -> StageT:
        """Make a result the newest one without saving it: a run that is resumed makes it again."""
        self.last = result
        return result
