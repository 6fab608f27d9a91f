"""`predict`: the reviewed text, a chosen bench as if the database had no other, and what is said where nothing can be predicted."""

import sqlite3

import pytest
from conftest import ROOT

from speclab import database
from speclab.command import Fault, Misuse
from speclab.words.predict import predictions

CASES = ROOT / "tests" / "cases"


def facts(path, *changes):
    """The rows of tests/cases/views_facts.sql, whose views tests/cases/make_views.py computes."""
    db = sqlite3.connect(path)
    for name in database.TABLES:
        db.executescript((ROOT / "results" / name).read_text())
    db.executescript(f"PRAGMA application_id = {database.ID}; PRAGMA user_version = {database.VERSION};")
    db.executescript((CASES / "views_facts.sql").read_text().replace("\n", ";\n"))
    for sql in changes:
        db.execute(sql)
    db.commit()
    db.close()
    return str(path)


def test_a_prediction_is_the_reviewed_text(tmp_path):
    path = facts(tmp_path / "x.db")
    assert predictions(path) + "\n" + predictions(path, source="steps", width=120) + "\n" == (CASES / "predictions.txt").read_text()


def test_a_chosen_bench_predicts_alone(tmp_path):
    path = facts(tmp_path / "all.db")
    latest, fit, others = predictions(path, source="bench"), 0, 0
    for bench in range(1, 5):
        one = facts(tmp_path / f"{bench}.db", f"DELETE FROM bench WHERE id <> {bench}")
        try:
            alone = predictions(one, source="bench")
        except Fault:
            with pytest.raises(Fault, match=f"has the weights, precision, device and machine of bench {bench}"):
                predictions(path, bench=bench)
            continue
        assert predictions(path, bench=bench) == alone
        fit += 1
        others += alone != latest
    assert fit >= 2 and others >= 1


@pytest.mark.parametrize("words, status, says", [
    (["--experiment", "two", "--cost", "bench"], 1, "nothing to predict: no run of a drafter is paired with none and has a bench"),
    (["--experiment", "three"], 2, 'no experiment "three" in it (one, two)'), (["--bench", "99"], 2, "there is no bench 99 in it"),
    (["--bench", "1", "--cost", "steps"], 2, "exclude each other"), (["--cost", "x"], 2, "--cost: expected one of bench|steps"),
    (["--db", "none.db"], 2, "none.db: no such database"),
])  # fmt: skip
def test_what_cannot_be_predicted_is_said(speclab, tmp_path, words, status, says):
    path = facts(tmp_path / "x.db")
    got = speclab("predict", *(() if "--db" in words else ("--db", path)), *words)
    assert got.status == status and says in got.err, got.err


def test_a_chosen_bench_must_be_in_the_file(tmp_path):
    with pytest.raises(Misuse, match="there is no bench 7"):
        predictions(facts(tmp_path / "x.db"), bench=7)


if __name__ == "__main__":  # rewrites predictions.txt, for a person to review: ./run python python/tests/test_predict.py
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = facts(f"{folder}/x.db")
        (CASES / "predictions.txt").write_text(predictions(path) + "\n" + predictions(path, source="steps", width=120) + "\n")
