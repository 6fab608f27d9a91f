"""`list` in text: the reviewed text of what is registered, and entries by name."""

from conftest import engine, expect_golden, refused

from speclab.words.list import text


def test_the_text_is_the_golden_file(within):
    calls = ["list", "list ngram", "list blockwise"]  # blockwise: a drafter and a rule
    expect_golden("list.txt", "\n".join(f"$ speclab {call}\n{within(*call.split()).out}" for call in calls))


def test_bounds_of_a_million_are_not_printed():
    option = {"name": "x", "type": "number", "required": True, "default": None, "min": -2.5, "max": 1e6, "help": "it is"}
    shown = text({"drafters": [{"name": "a", "summary": "b", "options": [option, option | {"min": -1e6}]}], "rules": [], "stages": []}, True)
    assert shown.endswith("      x            it is\n                   number, at least -2.5; required\n      x            it is\n"
                          "                   number; required\n")  # fmt: skip


def test_what_the_program_refuses_is_refused(within):
    refused(within("list", "ngrm"), 'no drafter, rule or sampling stage "ngrm"; did you mean ngram?', 2)
    assert within("list", "--help").out == engine("list", "--json", "--help")
    assert within("list", "temperature").out.startswith("Sampling stage\n  temperature: ")
