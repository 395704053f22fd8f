"""Published figures, each with its source; a figure whose method is not named has no place here.

"second hand" marks a figure quoted by another text than the method's own paper.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """A published result.

    Attributes:
        metric: the name of ours that it stands beside: `log_z_error`, `w2`, `w2_root`,
            `importance_share`, or "" where none of ours is the same quantity.
        value: the figure.
        words: what it is, by which method, under which protocol.
        source: a repository or paper by name.
    """

    metric: str
    value: float
    words: str
    source: str


FAB = "lollcat/fab-jax"
SCLD = "anonymous3141/SCLD"
FAB_Z = "log Z mean absolute error, FAB, 10 × 2000 draws, 5 seeds"

PUBLISHED: dict[str, tuple[Published, ...]] = {
    "gmm_v1": (Published("log_z_error", 0.00269, FAB_Z, FAB),),
    "gmm40_2": (
        Published("importance_share", 0.98, "ESS, NETS (0.95 to 0.98), second hand", "NETS"),
    ),
    "gmm40_50": (
        Published("w2", 328.0, "Sinkhorn, PDNS, second hand", "PDNS"),
        Published("w2", 3787.0, "Sinkhorn, SCLD, second hand", SCLD),
    ),
    "many_well_5": (
        Published("w2", 0.08, "Sinkhorn, PDNS, second hand", "PDNS"),
        Published("w2", 0.15, "Sinkhorn, ASBS", "ASBS"),
    ),
    "many_well_32": (Published("log_z_error", 0.0316, "log Z mean absolute error, FAB", FAB),),
    "funnel_10": (Published("log_z_error", 0.00218, "log Z mean absolute error, FAB", FAB),),
    "mos_50": (
        Published("w2", 353.0, "Sinkhorn, PDNS, second hand", "PDNS"),
        Published("w2", 656.0, "Sinkhorn, SCLD, second hand", SCLD),
    ),
    "cox_40": (
        Published("log_z_error", 0.194, "log Z mean absolute error, FAB", FAB),
        Published("", 497.85, "ELBO, SMC (SCLD 486.77), second hand", SCLD),
    ),
    "credit_25": (Published("", -585.10, "ELBO, FAB", FAB),),
    "robot_4": (Published("w2", 0.40, "Sinkhorn, SCLD (PIS 2.02), second hand", SCLD),),
    "dw4": (Published("w2_root", 0.43, "W2, ASBS", "ASBS"),),
}
