"""Every number that steers `learn`, in one object of frozen groups, one group per stage.

Each field states its meaning, its unit and its origin in brackets: the command that measured it, a
standard result, or "a guess" that nobody has measured.
"""

from involutive.learning.settings.bootstrap import BootstrapSettings
from involutive.learning.settings.budget import BudgetSettings
from involutive.learning.settings.fit import FitSettings
from involutive.learning.settings.frugal import FrugalSettings
from involutive.learning.settings.judge import JudgeSettings
from involutive.learning.settings.learn_settings import LearnSettings
from involutive.learning.settings.look import LookSettings
from involutive.learning.settings.refine import RefineSettings
from involutive.learning.settings.replicas import ReplicaSettings
from involutive.learning.settings.search import SearchSettings
from involutive.learning.settings.structure import StructureSettings

__all__ = [
    "BootstrapSettings",
    "BudgetSettings",
    "FitSettings",
    "FrugalSettings",
    "JudgeSettings",
    "LearnSettings",
    "LookSettings",
    "RefineSettings",
    "ReplicaSettings",
    "SearchSettings",
    "StructureSettings",
]
