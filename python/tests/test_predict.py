"""`predict`: the reviewed text, a chosen bench as if the database had no other, and what is said where nothing can be predicted."""

import sqlite3

import pytest
from conftest import ROOT, expect_golden

from speclab import database
from speclab.command import Fault
from speclab.words.predict import predictions

CASES = ROOT / "tests" / "cases"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return facts(tmp_path_factory.mktemp("facts") / "x.db")


def facts(path, *changes):
    """The rows of tests/cases/views_facts.sql, whose views tests/cases/make_views.py computes."""
    db = sqlite3.connect(path)
    for name in database.TABLES:
        db.executescript((ROOT / "results" / name).read_text())
    db.executescript(f"PRAGMA application_id = {database.ID}; PRAGMA user_version = {database.VERSION};")
    db.executescript("BEGIN;" + (CASES / "views_facts.sql").read_text().replace("\n", ";\n") + "COMMIT")
    for sql in changes:
        db.execute(sql)
    db.commit()
    db.close()
    return str(path)


def texts(path):
    return predictions(path) + "\n" + predictions(path, source="steps", width=120) + "\n"


def test_a_prediction_is_the_reviewed_text(made):
    expect_golden("predictions.txt", texts(made))


def test_a_chosen_bench_predicts_alone(made, tmp_path):
    latest, fit = predictions(made, source="bench"), []
    for bench in (1, 2, 3, 4):
        one = facts(tmp_path / f"{bench}.db", f"DELETE FROM bench WHERE id <> {bench}")
        try:
            alone = predictions(one, source="bench")
        except Fault:
            with pytest.raises(Fault, match=f"has the weights, precision, device and machine of bench {bench}"):
                predictions(made, bench=bench)
        else:
            assert predictions(made, bench=bench) == alone
            fit.append(alone != latest)
    assert len(fit) >= 2 and any(fit)


@pytest.mark.parametrize("words, status, says", [
    (["--experiment", "two", "--cost", "bench"], 1, "nothing to predict: no run of a drafter is paired with none and has a bench"),
    (["--experiment", "three"], 2, 'no experiment "three" in it (one, two)'), (["--bench", "99"], 2, "there is no bench 99 in it"),
    (["--bench", "1", "--cost", "steps"], 2, "exclude each other"), (["--cost", "x"], 2, "--cost: expected one of bench|steps"),
    (["--db", "none.db"], 2, "none.db: no such database"),
])  # fmt: skip
def test_what_cannot_be_predicted_is_said(within, made, words, status, says):
    got = within("predict", *(() if "--db" in words else ("--db", made)), *words)
    assert got.status == status and says in got.err, got.err
