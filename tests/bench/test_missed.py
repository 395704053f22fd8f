"""The test bed: its densities fit their draws, its table counts, its runs resume; a small run."""

import json

import jax
import numpy as np
import pytest

from involutive.bench.missed import densities, study
from involutive.bench.missed.densities import HIDDEN, KINDS, MIXTURES, case

KINDS_AND_HIDDEN = [kind for kind in (*KINDS, *HIDDEN) if kind in MIXTURES]


@pytest.mark.parametrize("kind", KINDS_AND_HIDDEN)
def test_densities_fit_their_draws(kind):
    """Stein: `E[x · ∇log p(x)] = -dim` under p, and not under draws that are a tenth too wide."""
    rng = np.random.default_rng(1)
    mixture = MIXTURES[kind](rng)
    draws = mixture.draw(rng, 20_000)
    slope = jax.jit(jax.vmap(jax.grad(mixture)))

    def score(x):
        terms = np.sum(np.asarray(slope(x)) * (x - draws.mean(0)), axis=1) + draws.shape[1]
        return abs(terms.mean()) / (terms.std() / np.sqrt(len(terms)))

    assert score(draws) < 5
    assert score(draws.mean(0) + 1.1 * (draws - draws.mean(0))) > 5


def test_seeds_draw_other_densities_and_the_same_again():
    one, same, other = (MIXTURES["arms"](np.random.default_rng(s)) for s in (1, 1, 2))
    assert np.array_equal(one.bends, same.bends) and not np.array_equal(one.sds, other.sds)


def test_the_sampler_is_not_told_the_truth():
    found = case("inside", 3)
    assert found.target.modes is None and found.target.sample is None
    assert found.judged.modes is not None and abs(sum(found.judged.modes.weights) - 1) < 1e-9
    assert np.isclose(found.judged.modes.weights[1], 0.5, atol=0.02)


def row(kind, seed, right, trusted):
    return {"kind": kind, "seed": seed, "right": right, "trusted": trusted, "seconds": 1.0}


def test_the_table_counts_every_cell():
    rows = [row("far", i, right, trusted) for i, (right, trusted) in
            enumerate([(True, True), (True, False), (False, False), (False, True)])]  # fmt: skip
    far, every = study.table(rows)
    assert [far[column] for column in study.COLUMNS] == [1, 1, 1, 1]
    assert every["kind"] == "all" and every["WRONG AND TRUSTED"] == 1


def test_a_study_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    made = []

    def once(kind, seed, budget):
        made.append((kind, seed))
        return row(kind, seed, True, True)

    monkeypatch.setattr(study, "once", once)
    out = tmp_path / "runs.jsonl"
    out.write_text(json.dumps(row("far", 0, False, True)) + '\n{"kind": "far", "se')
    rows = list(study.study(["far", "arms"], range(2), None, out))
    assert made == [("arms", 0), ("far", 1), ("arms", 1)]
    assert study.cell(rows[0]) == "WRONG AND TRUSTED" and len(rows) == 4


@pytest.mark.deep
@pytest.mark.row(23)
@pytest.mark.parametrize("kind", densities.KINDS)
def test_nothing_is_wrong_and_trusted(kind, record):
    """Two densities of every kind; `python -m involutive.bench.missed` runs twenty."""
    for seed in (100, 101):
        found = study.once(kind, seed, None)
        cell = study.cell(found)
        record(23, runs=1, right=int(found["right"]), trusted=int(found["trusted"]),
               wrong_and_trusted=int(cell == study.COLUMNS[3]))  # fmt: skip
        assert cell != study.COLUMNS[3], found
