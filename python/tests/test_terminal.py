"""`report` in the terminal: the reviewed text, numbers at the limits of their columns, names of any length, lines that only some databases have."""

import re
import sqlite3
import time

import pytest
from conftest import expect_golden, refused

from speclab import engine
from speclab.shown import paragraph, percent, rate, short, speed
from speclab.tables import terminal


@pytest.fixture
def report(cases):
    """Prints what `report` makes of changed numbers: a function of its cells, or of all."""

    def made(change=lambda value: None, top=None, details=False):
        value = engine.report(cases.path)
        change(value)
        return terminal.report(value, cases.connection, top, details)

    return made


def cell(value, run):
    return next(c for comparison in value["comparisons"] for c in comparison["cells"] if c["run"] == run)


def test_the_report_is_the_reviewed_text(cases, within):
    """The numbers are those of JSON, which test_view_twin.c compares with plain loops."""
    texts = [within("report", "--db", cases.path, *words).out for words in ([], ["--against", "longest=2"], ["--against", "8"])]
    expect_golden("report.txt", "\n\n".join(texts))


def test_the_numbers_of_the_summary_are_those_of_json(cases, report):
    rows = re.findall(r"^ *(\d+)[ *] *(\S+) +(\S+) (?:\[(.*?), (.*?)\])? +(\S+) +(\S+) +(\S*) +(\d+)  \S", report().split("\n\n\n")[0], re.M)
    cells = [c for comparison in cases.comparisons for c in comparison["cells"]]
    assert [int(row[0]) for row in rows] == [c["run"] for c in cells]
    for row, c in zip(rows, cells, strict=True):
        expected = [c["tokens_per_s"], 1 if c["baseline"] else c["speedup"], c["speedup_low"], c["speedup_high"], c["tokens_per_step"]]
        expected.append(None if c["acceptance_rate"] is None else 100 * c["acceptance_rate"])
        for text, x in zip(row[1:], expected, strict=False):
            assert text in ("-", "") if x is None else abs(float(text) - x) <= 0.5001 * 10 ** -len(text.partition(".")[2]), (row, x)
        assert row[7] == c["equal"]


@pytest.mark.parametrize("form, cases", [
    (rate, {0: ".00", 1 / 250: "+0", 2 / 250: ".01", 247 / 250: ".99", 249 / 250: ">.99", 1: "1.0", 199 / 200: ">.99", None: "-"}),
    (percent, {0: "0", 1 / 250: "<1", 1 / 200: "0", 2 / 250: "1", 249 / 250: "100", -0.004: "0", 12: "?", None: "-"}),
    (short, {2: "2.00", 40: "40.0", 99.95: "100", 400: "400", 9999: "9999", 10000: ">1e4", None: "-"}),
    (speed, {0.37: "0.37", 12.34: "12.3", 1279863: "1279863", 9999999.6: "1e+07", None: "-"}),
])  # fmt: skip
def test_numbers_keep_their_columns(form, cases):
    assert {x: form(x) for x in cases} == cases


def test_lines_are_wrapped_by_characters():
    for width in range(13):  # two columns of indentation, eight of words
        assert paragraph("ää öö üü ab", width, 2) == "  ää öö üü\n  ab"
    assert paragraph("  two  blanks  and a word " + 12 * "ä" + "x  ", 16, 4, "  a") == "  a two  blanks\n    and a word\n    " + 12 * "ä" + "\n    x"
    began = time.monotonic()
    assert paragraph("äxxxxxx" * 600000, 12, 2).count("\n") == 420000 - 1
    assert time.monotonic() - began < 30


def test_names_of_any_length_and_extreme_numbers_fit_80_columns(report):
    def change(value):
        for i, comparison in enumerate(value["comparisons"]):
            comparison |= dict.fromkeys(("title", "target", "common"), "é€" * 150) | {"sampling": "an option=[1, 2], " * 40}
            for c in comparison["cells"]:
                c |= {"name": "an option with cafés=[1, 2, 3], " * 40, "drafter": "é€" * 150, "rule": "x " * 90, "machine": f"m{c['run']} " * 30}
                for of in c["by_category"]:
                    of["category"] = "漢" * 30
                for k, key in enumerate(c):
                    if isinstance(c[key], float):
                        c[key] = (1e-5, 0.996, 1e12, 99.96, 9.996)[(i + k + c["run"]) % 5]

    lines = report(change).splitlines()
    assert len(lines) > 1000 and max(map(len, lines)) <= 80 and not any(line.endswith(" ") for line in lines)


def test_controls_in_names_are_escaped(cases, within):
    with sqlite3.connect(cases.path) as db:
        db.execute("UPDATE run SET drafter = 'a' || char(27) || '[2Jb', experiment = 'x' || char(7)")
    for words in ([], ["--against", "8"]):
        out = within("report", "--db", cases.path, *words).out
        assert "\\u001B[2J" in out and "\x1b" not in out


def test_the_deviation_of_a_rule_is_warned_of_when_it_is_large(report):
    """One rejection of probability 1/500 is 22 standard deviations, and no reason to warn."""
    cases = (100, 75, 16, False), (100, 75, 25, False), (126, 100, 26, True), (700, 1000, 900, True), (3, 1, 0.04, False)
    for accepted, expected, variance, warns in cases:
        z = (accepted - expected) / variance**0.5
        change = {"accepted_uncut": float(accepted), "expected_tokens": float(expected), "z": z}
        text = report(lambda value, change=change: cell(value, 2).update(change))
        assert f"\n  2  {accepted} accepted, {expected:.1f} expected, z = {z:.1f}\n" in text
        assert ("WARNING: more than 5 standard deviations" in text) == warns, (z, variance)
    text = report(lambda value: [c.update(expected_tokens=None, z=None) for comparison in value["comparisons"] for c in comparison["cells"]])
    assert "E[accepted | draft] under the rule" not in text and "\nz  " not in text


def test_lines_that_not_all_reports_have(cases, report):
    assert "Drafts deeper than 8" not in report()
    assert "Drafts deeper than 8" in report(lambda value: cell(value, 2).update(max_depth=9))
    assert "  7  nothing to compare with\n" in report(lambda value: cell(value, 7).update(baseline=False, equal="-"))
    with sqlite3.connect(cases.path) as db:
        db.execute("UPDATE step_source SET accepted = 0")
        db.execute("DELETE FROM step_rule WHERE rule = '(bound)'")
    text = report()
    assert "  3  ngram 0 % (0/46)" not in text and "ngram 0 % (0/" in text and "bound" not in text.partition("under each rule")[2]
    with sqlite3.connect(cases.path) as db:
        db.execute("DELETE FROM step_source")
        db.execute("DELETE FROM step_rule")
    assert "Who proposed" not in report() and "under each rule" not in report()


def test_of_many_cells_the_fastest_are_shown(report):
    def many(value):
        first = value["comparisons"][0]
        none, other = (next(c for c in first["cells"] if c["baseline"] == baseline) for baseline in (True, False))
        value["comparisons"] = [first | {"cells": [none, *(other | {"run": i, "speedup": 200 / i, "lossless": i <= 100} for i in range(2, 121))]}]

    text = report(many)
    assert "\n      109 more cells, 20 of them lossy, with speedups from 16.7 down to 1.67\n" in text
    assert "These are 120 cells, so the tables of each comparison are left out" in text and "By prompt" not in text
    text = report(many, 0, True)
    assert "more cells" not in text and "left out (" not in text and "\n 120* " in text and "By prompt" in text


def test_wrong_calls_are_refused_with_a_sentence(cases, within):
    refused(within("report", "--db", "none.db"), "none.db: no such database; `speclab run FILE.yaml --db none.db` creates it", 2)
    refused(within("report", "--db", cases.path, "--experiment", "x"), 'no experiment "x" in it (one, two)', 2)
    refused(within("report", "--db", cases.path, "--against", "99"), "--against 99: no run has this number", 2)
    refused(within("report", "--top", "-1"), '--top: expected an integer from 0 to 1000000, found "-1"', 2)
