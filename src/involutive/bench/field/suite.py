"""The suite `field`: targets of the literature with what is known of each."""

from collections.abc import Callable
from pathlib import Path

from involutive.bench.entry import Entry
from involutive.bench.field import models, robot, synthetic
from involutive.targets.target import Target

Maker = Callable[[Path | None], Target]
CENTRE = (
    "translations are fixed by a normal on the centre of mass, which the published density leaves "
    "improper; W2 is of configurations with the centre removed, not aligned by rotations"
)
CLIPPED = "draws are clipped to ±30 before W2, as the reference draws there are"
NO_PRIOR = (
    "with the prior N(0, I); the newest version of the repository has the prior commented out, and "
    "a separable regression without a prior has no integral"
)
BOUND = "the published value is an ELBO, a lower bound of log Z; ours is log Z itself"


def _plain(make: Callable[[], Target]) -> Maker:
    return lambda data: make()


def _many_well(dim: int) -> Entry:
    log_z = synthetic.many_well_log_z(dim)
    make = _plain(lambda: synthetic.many_well(dim))
    return Entry(make, log_z=log_z, multimodal=True)


def _gmm40(dim: int) -> Entry:
    return Entry(_plain(lambda: synthetic.gmm40(dim)), spread=40.0, log_z=0.0, multimodal=True)


def _robot(goals: int) -> Entry:
    words = "exact draws close the arm by solving two joints; the published reference is a chain"
    return Entry(
        _plain(lambda: robot.robot(goals)), spread=1.0, log_z=robot.LOG_Z[goals],
        multimodal=True, exact=20_000, protocol=words,
    )  # fmt: skip


def _phi4(rows: int, columns: int) -> Entry:
    return Entry(
        _plain(lambda: synthetic.phi4(rows, columns)), multimodal=True, symmetric=True,
        protocol="no published value was found; the magnetisation per site is 2.087 on 8×8 (SCLD)",
    )  # fmt: skip


def _cox(side: int, log_z: float) -> Entry:
    words = "the reference log Z is a long SMC run's; draws are not judged"
    return Entry(
        lambda data: models.cox(data, side), log_z=log_z, files=("pines.csv",), reference=False,
        protocol=words,
    )  # fmt: skip


FIELD: dict[str, Entry] = {
    "gmm_v1": Entry(_plain(synthetic.gmm_v1), log_z=0.0, multimodal=True),
    "gmm40_2": _gmm40(2),
    "gmm40_50": _gmm40(50),
    "many_well_5": Entry(_plain(synthetic.mw54), log_z=synthetic.mw54_log_z(), multimodal=True),
    "many_well_32": _many_well(32),
    "many_well_64": _many_well(64),
    "many_well_128": _many_well(128),
    "funnel_10": Entry(
        _plain(lambda: synthetic.funnel(10)), log_z=0.0, heavy_tails=True, clip=30.0,
        protocol=CLIPPED,
    ),
    "mos_50": Entry(
        _plain(synthetic.mos), spread=15.0, log_z=0.0, multimodal=True, heavy_tails=True,
    ),
    "brownian_32": Entry(_plain(models.brownian), log_z=models.brownian_log_z(), protocol=BOUND),
    "cox_40": _cox(40, 501.806),
    "cox_32": _cox(32, 503.39),
    "credit_25": Entry(
        models.credit, files=("german.data-numeric",), protocol=f"{NO_PRIOR}; {BOUND}"
    ),
    "cancer_31": Entry(
        _plain(models.cancer), stored="breast_cancer", protocol=f"{NO_PRIOR}; {BOUND}"
    ),
    "seeds_26": Entry(_plain(models.seeds), protocol=BOUND),
    "ionosphere_35": Entry(models.ionosphere, files=("ionosphere.data",), protocol=BOUND),
    "sonar_61": Entry(models.sonar, files=("sonar.all-data", "sonar.data")),
    "robot_1": _robot(1),
    "robot_4": _robot(4),
    "dw4": Entry(_plain(synthetic.dw4), multimodal=True, centred=4, protocol=CENTRE),
    "lj13": Entry(
        _plain(synthetic.lj13), centred=13, spread=1.0,
        protocol=f"{CENTRE}; each pair counts twice, as in DEM",
    ),
    "phi4_8x8": _phi4(8, 8),
    "phi4_16x8": _phi4(16, 8),
}  # fmt: skip
QUICK = ("gmm_v1", "many_well_5", "funnel_10")  # of `--quick`
