"""Golden acceptance lengths: a file has what runs are expected to accept, and a check compares them with it.

Length and tolerance are those of vLLM's tests (tests/v1/spec_decode/test_acceptance_length.py): 1 + accepted / drafts,
within 5 % of the expected one; by position not more than 5 % below it. InferenceX's golden_al_distribution has lengths
of this definition.
"""

from collections.abc import Iterator

from speclab import files as inputs
from speclab import strict_json
from speclab.command import Fault
from speclab.exports import Run, dumps, runs
from speclab.results import Results

RTOL = 0.05  # vLLM's DEFAULT_RTOL
NAMES = ("target", "drafter", "rule", "sampling", "prompts")  # an entry is about the runs with these fields; a missing
                                                             # field does not matter
_KINDS = {name: (lambda x: isinstance(x, str), "a text") for name in NAMES} | {
    "acceptance_length": (lambda x: strict_json.is_number(x, 1), "a number of at least 1"),
    "acceptance_lengths_per_pos": (lambda x: isinstance(x, list), "an array of numbers from 0 to 1"),
    "rtol": (lambda x: strict_json.is_number(x, 0), "a number of at least 0")}  # fmt: skip
_QUERIES = {"lengths": "SELECT run, acceptance_length FROM vllm_metrics WHERE acceptance_length IS NOT NULL",
            "rates": "SELECT run, acceptance_rate FROM vllm_positions ORDER BY run, position"}  # fmt: skip


def _names(run: Run) -> dict[str, str]:
    return {name: run["prompt_file" if name == "prompts" else name] for name in NAMES}


def _runs(results: Results) -> Iterator[tuple[Run, float | None, list[float]]]:
    """Returns each run with its length, None if it has no drafts, and its rates by position."""
    for run, of in runs(results, **_QUERIES):
        yield run, of.lengths[0]["acceptance_length"] if of.lengths else None, [row["acceptance_rate"] for row in of.rates]


def files(results: Results):
    """Yields golden.json: an entry on two lines, numbers with four digits, in a form that people can edit."""
    entries = []
    for run, length, rates in _runs(results):
        if length is not None:
            names = ", ".join(f"{dumps(key)}: {dumps(value)}" for key, value in _names(run).items())
            listed = ", ".join(f"{x:.4f}" if x >= 0.001 or x == 0 else f"{x:.4g}" for x in rates)
            entries.append(f' {{ {names},\n  "acceptance_length": {length:.4f}, "acceptance_lengths_per_pos": [{listed}], "rtol": {RTOL:g}}}')
    if not entries:
        raise Fault("no run has drafts, so nothing is expected of any")
    yield "golden.json", '{"acceptance_lengths": [\n' + ",\n".join(entries) + "\n]}\n"


def _checked(entry, where: str) -> dict:
    if not isinstance(entry, dict):
        raise Fault(f"{where}: expected an object")
    for key, value in entry.items():
        if key not in _KINDS:
            raise Fault(f"{where}: {key}: no such key; expected {', '.join(list(_KINDS)[:-1])} or {list(_KINDS)[-1]}")
        is_one, what = _KINDS[key]
        if not is_one(value):
            raise Fault(f"{where}: {key}: expected {what}")
    for i, x in enumerate(entry.get("acceptance_lengths_per_pos", [])):
        if not strict_json.is_number(x, 0, 1):
            raise Fault(f"{where}: acceptance_lengths_per_pos[{i}]: expected a number from 0 to 1")
    if "acceptance_length" not in entry:
        raise Fault(f"{where}: acceptance_length: expected a number of at least 1, found none")
    return entry


def _check_run(entry: dict, run: Run, length: float | None, rates: list[float]) -> bool:
    expected, rtol = entry["acceptance_length"], entry.get("rtol", RTOL)
    if length is None:
        print(f"{run['run']:4} {expected:9.3f}         -           -  NO DRAFTS     {run['drafter']}")
        return False
    off = length / expected - 1
    within = abs(off) <= rtol
    said = "within" if within else "OUTSIDE"
    print(f"{run['run']:4} {expected:9.3f} {length:9.3f} {100 * off:+9.2f} %  {said:8}{100 * rtol:4.1f} %  {run['drafter']}")
    for i, x in enumerate(entry.get("acceptance_lengths_per_pos", [])):
        rate = rates[i] if i < len(rates) else 0.0
        if rate < x * (1 - rtol):
            print(f"     position {i + 1}: expected at least {x * (1 - rtol):.4f}, found {rate:.4f}")
            within = False
    return within


def check(results: Results, path: str) -> bool:
    """Prints a line for each run that an entry is about. Returns whether all are within their tolerance, and each entry
    has a run. Raises Fault."""
    content = strict_json.loads(inputs.read_text(path), path)
    entries = content.get("acceptance_lengths") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise Fault(f"{path}: acceptance_lengths: expected an array with entries, as `speclab report --export golden` writes it")
    entries = [_checked(entry, f"{path}: acceptance_lengths[{i}]") for i, entry in enumerate(entries)]
    all_runs, within = list(_runs(results)), True
    print(" run  expected  measured   difference                  drafter")
    for entry in entries:
        named = {name: entry[name] for name in NAMES if name in entry}
        about = [of for of in all_runs if not of[0]["baseline"] and named.items() <= _names(of[0]).items()]
        for of in about:
            within = _check_run(entry, *of) and within
        if not about:
            print(f"   - {entry['acceptance_length']:9.3f}         -           -  NO RUN        {' '.join(named.values())}")
            within = False
    return within
