"""compare_forms - recognizes whose results a file has, and makes rows of that program's numbers. It needs the standard
library alone.

A file is a database, or JSON, JSON Lines or CSV whose objects one form of FORMS recognizes by their keys. A missing
number is not known. A number beyond its bound is an error that names file, line and key.
"""

import contextlib
import csv
import io
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from speclab import database, files, strict_json
from speclab.command import Fault
from speclab.compared import POSITIONS, Row
from speclab.digest import content_hash

EXPECTED = ("expected results of vllm bench serve, latency or throughput, SGLang's bench_serving, llama-bench (json, jsonl, csv), llama-server, "
            "Spec-Bench, a speculation profile, published numbers, or a database of speclab")  # fmt: skip
PUBLISHED = ("method", "target", "dataset", "temperature", "tau", "speedup", "source")
LEAST_PUBLISHED = 4  # keys by which a file of published numbers is recognized; the other keys are then errors


@dataclass
class Object:
    """An object of a file, and its place; line None: the file is one object or an array."""

    path: str
    line: int | None
    value: dict

    def fault(self, message: str) -> Fault:
        return Fault(f"{self.path}{f':{self.line}' if self.line else ''}: {message}")

    def number(self, key: str, least: float = 0, most: float | None = None, of: dict | None = None) -> float | None:
        """Returns the number at `key`; None: missing or null. Raises Fault for another value, or one out of bounds."""
        x = (self.value if of is None else of).get(key)
        if x is None or (strict_json.is_number(x) and least <= x and (most is None or x <= most)):
            return None if x is None else float(x)
        expected = f"of at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        found = strict_json.described(x) if not strict_json.is_number(x) else "a number below 0" if x < 0 else f"{x:g}"
        raise self.fault(f"{key}: expected a number {expected}, found {found}")

    def needed(self, key: str, of: dict | None = None) -> float:
        x = self.number(key, of=of)
        if x is None:
            raise self.fault(f"{key}: expected a number of at least 0, found none")
        return x

    def numbers(self, key: str, most: float | None = None, of: dict | None = None) -> list[float]:
        """Returns a list of numbers from 0 on; with most = 1, of shares. In Spec-Bench's files it is that of the first
        choice."""
        name, found = (key, self.value.get(key)) if of is None else (f"choices[0].{key}", of.get(key))
        if not isinstance(found, list):
            raise self.fault(f"{name}: expected {f'a list of shares, found {strict_json.described(found)}' if most else 'an array of numbers'}")
        for i, x in enumerate(found):
            if not strict_json.is_number(x, 0, most or x):
                raise self.fault(f"{name}[{i}]: expected a number {'of at least 0' if most is None else f'from 0 to {most}'}")
        return found

    def text(self, key: str) -> str | None:
        """Returns the text at `key`, or at "key.key" of a nested object; None: none or empty."""
        value = self.value
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, str) and value else None

    def column(self, name: str, key: str):
        """Returns the value of a row's column."""
        if name in ("model", "method", "machine", "prompts"):
            return self.text(key)
        if name == "positions":
            return [] if self.value.get(key) is None else self.numbers(key, 1)[:POSITIONS]
        x = self.needed(key) if name == "tokens_per_s" else self.number(key, 1 if name == "acceptance_length" else 0)
        if name not in ("requests", "batch", "tokens"):
            return x
        if x is not None and (x > 1e15 or x != int(x)):
            raise self.fault(f"{key}: expected a count up to 10^15, found {x:g}")
        return int(x or 0) or None  # 0 means "not stated" as well


# ---- columns of a form's rows that no single key of an object gives


def _requests(o: Object, row: Row, of: str = "") -> str | None:
    tokens, rate = o.column("tokens", "total_input_tokens"), o.value.get("request_rate")
    limit = f", {rate:g} requests/s" if strict_json.is_number(rate) else f", {rate}" if of and isinstance(rate, str) else ""
    return f"{of}{row.requests} requests, {tokens} prompt tokens{limit}" if row.requests and tokens else None


def _vllm(o: Object, row: Row) -> None:
    percent = o.number("spec_decode_acceptance_rate", 0, 100)
    row.acceptance_rate = None if percent is None else percent / 100
    row.method = o.text("label") if o.text("label") != o.text("backend") else None  # --label, which is the backend's
                                                                                   # name unless given
    row.prompts = _requests(o, row)  # a rate of requests below infinity makes the traffic part of the prompts


def _sglang(o: Object, row: Row) -> None:
    row.method = row.method or o.text("server_info.speculative_algorithm")
    row.prompts = _requests(o, row, f"{name}, ") if (name := o.text("dataset_name")) else None


def _latency(o: Object, row: Row) -> None:
    row.mean_latency_ms = 1e3 * o.needed("avg_latency")


def _published(o: Object, row: Row) -> None:
    lacking = [key for key in PUBLISHED if key not in o.value]
    if lacking:
        raise o.fault(f"{lacking[0]}: expected it beside {', '.join(key for key in PUBLISHED if key in o.value)}, found none")
    for name, key in (("method", "method"), ("model", "target"), ("prompts", "dataset"), ("source", "source")):
        value = f"{x:.17g}" if strict_json.is_number(x := o.value[key]) else x
        if not isinstance(value, str) or not value:
            raise o.fault(f"{key}: expected a text, found {strict_json.described(value or None)}")
        setattr(row, name, value)
    temperature = o.number("temperature")
    row.sampling = None if temperature is None else f"temperature={temperature:g}"


def _own(o: Object, row: Row) -> None:
    """Adds what only speclab's own files in another form state: drafter, prompts, machine, sampling, marks."""
    of = o.value.get("speclab")
    if isinstance(of, dict) and row.tool in ("vllm bench serve", "sglang bench_serving"):
        row.tool = "speclab, vLLM's form" if row.tool.startswith("vllm") else "speclab, SGLang's form"
        for name, key in (("method", "drafter"), ("machine", "machine"), ("sampling", "sampling"), ("prompts", "prompts")):
            setattr(row, name, o.text(f"speclab.{key}") or getattr(row, name))
        row.prompts_counted = row.prompts_counted and o.text("speclab.prompts") is None
        row.lossy, row.inflated = of.get("lossless") is False, of.get("marked_inflated") is True


# ---- forms whose rows come from several objects


def _llama_bench(all_of: list[Object]) -> list[Row]:
    others = re.compile("build_|cpu_info|gpu_info|model_|n_prompt|n_gen|n_depth|test_time|avg_|stddev_|samples_")
    settings = [key for key in all_of[0].value if not others.match(key) and len({strict_json.dumps(o.value.get(key, "")) for o in all_of}) > 1]
    rows = []
    for o in all_of:
        v, speed = o.value, o.needed("avg_ts")
        prompt, generated, depth = o.needed("n_prompt"), o.needed("n_gen"), o.number("n_depth") or 0
        test = "+".join([f"pp{prompt:.0f}"] * (prompt > 0) + [f"tg{generated:.0f}"] * (generated > 0)) + (f" @ d{depth:.0f}" if depth > 0 else "")
        model, cpu, threads = o.text("model_filename"), o.text("cpu_info"), v.get("n_threads")
        machine = [cpu, o.text("gpu_info"), o.text("backends") or "?", f"{threads:.0f} threads" if strict_json.is_number(threads) else None]
        rows.append(Row(o.path, o.line, "llama-bench", tokens_per_s=speed, prompts=test, prompts_in_row=True, batch=1,
                        method=test + "".join(f", {key}={strict_json.dumps(v[key])}" for key in settings if key in v),
                        tokens_per_s_is="prompt tokens / time of passes" if generated == 0 else
                        "generated tokens / time of passes, sampling excluded" if prompt == 0 else
                        "prompt and generated tokens / time of passes",
                        model=model and (model.rsplit("/", 1)[-1] or None), sampling="none: random tokens",
                        machine=", ".join(filter(None, machine)) if cpu else None))  # fmt: skip
    return rows


def _llama_server(all_of: list[Object]) -> list[Row]:
    """Sums over responses. The number of draft tokens of a response without counters is not known."""
    prompt = tokens = ms = drafted = accepted = after_first = 0.0
    drafts, counted = False, True
    for o in all_of:
        t = o.value["timings"]
        n, took, given = o.needed("predicted_n", t), o.needed("predicted_ms", t), o.needed("prompt_n", t)
        of_drafts = o.number("draft_n", of=t)
        of_accepted = o.number("draft_n_accepted", 0, of_drafts, of=t)
        prompt, tokens, ms = prompt + given, tokens + n, ms + took
        drafts = drafts or of_drafts is not None or of_accepted is not None
        counted = counted and of_drafts is not None and of_accepted is not None
        drafted, accepted, after_first = drafted + (of_drafts or 0), accepted + (of_accepted or 0), after_first + max(n - 1, 0)
    if not ms > 0:
        raise all_of[0].fault("predicted_ms: expected a time above 0 in some response")
    row = Row(all_of[0].path, None, "llama-server", model=all_of[0].text("model"), requests=len(all_of), prompts_counted=True,
              prompts=f"{len(all_of)} requests, {prompt:.0f} prompt tokens", tokens_per_s=1e3 * tokens / ms,
              # fmt: skip.
              tokens_per_s_is="generated tokens / time of generation", method="drafted" if drafts else "none")
    if counted:
        row.acceptance_rate = accepted / drafted if drafted > 0 else None
        if after_first > accepted:  # each other token has its own step; the first is the prompt's
            row.acceptance_length, row.acceptance_length_is = after_first / (after_first - accepted), "tokens / steps, steps = tokens - accepted"
    return [row]


def _spec_bench(all_of: list[Object]) -> list[Row]:
    """Reads answer files (evaluation/eval.py): the numbers of Spec-Bench's evaluation/speed.py, over the first choices.
    """
    rates, lengths = 0.0, []
    for o in all_of:
        first = o.value["choices"][:1]
        of = first[0] if first and isinstance(first[0], dict) else {}
        new, wall, accepted = (o.numbers(key, of=of) for key in ("new_tokens", "wall_time", "accept_lengths"))
        lengths += accepted
        if not sum(wall) > 0:
            raise o.fault("choices[0].wall_time: expected seconds above 0")
        rates += sum(new) / sum(wall)
    # Two files with equal hashes of their ids are about the same questions.
    ids = [strict_json.dumps(o.value["question_id"]).encode() for o in all_of]
    ids = content_hash(b"".join(struct.pack("<q", len(name)) + name for name in ids))
    row = Row(all_of[0].path, None, "Spec-Bench", method=all_of[0].text("model_id"), prompts=f"{len(all_of)} questions {ids[:8]}",
              requests=len(all_of), batch=1, tokens_per_s=rates / len(all_of),
              tokens_per_s_is="mean over questions of new tokens / wall time")  # fmt: skip
    at_least = [sum(x >= n for x in lengths) for n in range(2, POSITIONS + 2)]
    if any(at_least):
        row.acceptance_length, row.acceptance_length_is = sum(lengths) / len(lengths), "tokens / steps"
        row.acceptance_by_position_is = "of steps"
        row.positions = [n / len(lengths) for n in at_least if n > 0]
    return [row]


# ---- the recognition of a form


@dataclass(frozen=True)
class Form:
    """A form of files: the keys that its objects have, the columns of a row that one of the keys gives, and the columns
    that are equal in every row."""

    name: str
    keys: str | Callable[[dict], bool]
    columns: dict[str, str] = field(default_factory=dict)
    said: dict = field(default_factory=dict)
    more: Callable[[Object, Row], None] = _own
    whole: Callable[[list[Object]], list[Row]] | None = None

    def knows(self, value: dict) -> bool:
        return all(key in value for key in self.keys.split()) if isinstance(self.keys, str) else self.keys(value)

    def rows(self, objects: list[Object]) -> list[Row]:
        return self.whole(objects) if self.whole else [self._row(o) for o in objects]

    def _row(self, o: Object) -> Row:
        row = Row(o.path, o.line, **{"tool": self.name} | self.said, **{name: o.column(name, key) for name, key in self.columns.items()})
        self.more(o, row)
        _own(o, row)
        return row


_SERVED = {"tokens_per_s": "output_throughput", "mean_ttft_ms": "mean_ttft_ms", "mean_tpot_ms": "mean_tpot_ms", "requests": "completed",
           "batch": "max_concurrency"}  # fmt: skip
_SERVING = {"tokens_per_s_is": "output tokens / duration of the benchmark", "prompts_counted": True}
# vLLM's forms come from vllm/benchmarks/serve.py, latency.py, throughput.py. They state neither machine nor prompts,
# unless --metadata machine=.. does. SGLang's accept_length covers the time since the server started, not the run.
# llama-bench measures passes without sampling, and drafts nothing.
FORMS = [
    Form("vllm bench serve", "output_throughput total_token_throughput",
         _SERVED | {"mean_latency_ms": "mean_e2el_ms", "acceptance_length": "spec_decode_acceptance_length", "model": "model_id",
                    "machine": "machine", "positions": "spec_decode_per_position_acceptance_rates"},
         _SERVING | {"acceptance_length_is": "1 + accepted / drafts", "acceptance_by_position_is": "of drafts"}, _vllm),
    Form("vllm bench latency", "avg_latency latencies", more=_latency),
    Form("vllm bench throughput", "elapsed_time tokens_per_second", {"tokens_per_s": "tokens_per_second", "requests": "num_requests"},
         {"tokens_per_s_is": "prompt and output tokens / time"}),
    Form("SGLang's bench_serving", "output_throughput accept_length",
         _SERVED | {"mean_latency_ms": "mean_e2e_latency_ms", "acceptance_length": "accept_length", "model": "server_info.model_path",
                    "method": "tag"},
         _SERVING | {"tool": "sglang bench_serving", "acceptance_length_is": "tokens / steps"}, _sglang),
    Form("llama-bench", "build_commit avg_ts", whole=_llama_bench),
    Form("llama-server", lambda o: isinstance(o.get("timings"), dict), whole=_llama_server),
    Form("Spec-Bench", lambda o: "question_id" in o and isinstance(o.get("choices"), list), whole=_spec_bench),
    Form("a speculation profile", "schema_version marginal_accept_rates",
         {"acceptance_length": "mean_accept_length", "positions": "marginal_accept_rates", "model": "target_model.id", "method": "method",
          "prompts": "measurement_conditions.dataset"},
         {"tool": "speculation profile", "acceptance_length_is": "tokens / steps", "acceptance_by_position_is": "of steps"}),
    Form("published numbers", lambda o: sum(key in o for key in PUBLISHED) >= LEAST_PUBLISHED, {"acceptance_length": "tau", "speedup": "speedup"},
         {"tool": "published", "acceptance_length_is": "tau, as published"}, _published),
]  # fmt: skip


def _rows(path: str, found: list[tuple[int | None, object]]) -> list[Row]:
    objects, form = [Object(path, line, value) for line, value in found], None
    if not found:
        raise Fault(f"{path}: no results; {EXPECTED}")
    for o in objects:
        if not isinstance(o.value, dict):
            raise o.fault(f"not an object; {EXPECTED}")
        of = next((f for f in FORMS if f.knows(o.value)), None)
        if of is None:
            raise o.fault(f"an object with other keys; {EXPECTED}")
        if form not in (None, of):
            raise o.fault(f"expected results of {form.name} as before, found those of {of.name}")
        form = of
    return form.rows(objects)


def _objects(content: str, path: str) -> list[tuple[int | None, object]]:
    """Returns the objects of a file. A single object may extend over lines; several are one a line, so that the first
    line is one."""
    try:
        strict_json.parse(content.lstrip().split("\n", 1)[0], lenient=True)
    except ValueError:
        return [(None, strict_json.loads(content, path, lenient=True))]
    lines = [(i, line) for i, line in enumerate(content.split("\n"), 1) if line.strip(" \t\r")]
    return [(i if len(lines) > 1 else None, strict_json.loads(line, path, i, lenient=True)) for i, line in lines]


def _csv_value(field: str) -> float | str | None:
    with contextlib.suppress(ValueError):
        if field[:1] in tuple("0123456789-") and "_" not in field:
            return float(field)
    return field or None


def _csv(content: str, path: str) -> list[tuple[int | None, object]]:
    reader, found = csv.DictReader(io.StringIO(content, newline="")), []
    try:
        for row in reader:
            if None in row or None in row.values():
                given = "more" if None in row else sum(value is not None for value in row.values())
                raise Fault(f"{path}:{reader.line_num}: expected {len(reader.fieldnames)} fields, found {given}")
            found.append((reader.line_num, {name.strip(): _csv_value(value) for name, value in row.items()}))
    except csv.Error as why:
        raise Fault(f"{path}:{reader.line_num}: {why}") from None
    return found


# ---- speclab's databases

_RUNS = """WITH pairs AS MATERIALIZED (
        SELECT p.run, min(q.run) AS none, max(q.run) AS other FROM paired AS p JOIN sequence AS q ON q.id = p.none GROUP BY p.run),
    means AS MATERIALIZED (SELECT run, max(iif(what = 'ttft', mean_ns, NULL)) / 1e6 AS ttft, max(iif(what = 'tpot', mean_ns, NULL)) / 1e6 AS tpot
        FROM latency GROUP BY run),
    whole AS MATERIALIZED (SELECT run, mean_e2e_latency_ms FROM sglang_metrics)
    SELECT run, target AS model, drafter || CASE rule WHEN 'rejection' THEN '' ELSE '; ' || rule END AS method,
    prompt_file AS prompts, machine, sampling, peers, NOT lossless AS lossy, marked_inflated AS inflated,
    sequences AS requests, batch, tokens_per_s, drafter_kind = 'none' AS is_none,
    CASE WHEN drafter_kind <> 'none' THEN tokens_per_step END AS acceptance_length, acceptance_rate,
    speedup AS paired_speedup, iif(none = other, none, NULL) AS none, ttft AS mean_ttft_ms, tpot AS mean_tpot_ms,
    mean_e2e_latency_ms AS mean_latency_ms
    FROM run_summary LEFT JOIN pairs USING (run) LEFT JOIN means USING (run) LEFT JOIN whole USING (run) WHERE sequences > 0 ORDER BY run"""


def _runs(path: str) -> list[Row]:
    """Returns the runs of a database; each view is read once."""
    rows = []
    with contextlib.closing(database.connect(path)) as db, database.faults(path):
        positions: dict[int, list[float]] = {}
        for run, rate in db.execute("SELECT run, rate FROM acceptance WHERE depth <= ? ORDER BY run, depth", [POSITIONS]):
            positions.setdefault(run, []).append(rate)
        for values in database.dicts(db, _RUNS):
            values |= {"lossy": bool(values["lossy"]), "inflated": bool(values["inflated"])}
            found = [] if values.pop("is_none") else positions.get(values["run"], [])
            rows.append(Row(path, None, "speclab", tokens_per_s_is="new tokens / time of decoding, prefill excluded",
                            # fmt: skip.
                            acceptance_length_is="tokens / steps", acceptance_by_position_is="of drafts", positions=found, **values))
    if not rows:
        raise Fault(f"{path}: no run has texts")
    return rows


def _read(path: str) -> list[Row]:
    head = b""
    if path != "-":
        with contextlib.suppress(Fault), files.open_input(path) as f:  # a database or a model may be larger than memory
            head = f.read(512)
    if head.startswith(b"SQLite format 3\0"):
        return _runs(path)
    if b"\0" in head:
        raise Fault(f"{path}: a binary file; {EXPECTED}")
    content = files.read_text(path, files.TEXTS, stream=path == "-")
    begin = content.lstrip(" \t\r\n")
    if begin.startswith("["):
        return _rows(path, [(None, value) for value in strict_json.loads(content, path, lenient=True)])
    if begin.startswith("{"):
        return _rows(path, _objects(content, path))
    names = begin.split("\n", 1)[0].replace('"', "").split(",")
    if begin.startswith("build_commit,") or sum(name.strip() in PUBLISHED for name in names) >= LEAST_PUBLISHED:
        return _rows(path, _csv(content, path))
    if begin.startswith(("CREATE TABLE", "|")):
        raise Fault(f"{path}: {'a Markdown table' if begin[0] == '|' else 'SQL'} cannot be read: run llama-bench with -o json, jsonl or csv")
    raise Fault(f"{path}: not JSON; {EXPECTED}")


def read(path: str) -> list[Row]:
    """Returns the rows of a file of any form; "-" is stdin. Raises Fault."""
    rows = _read(path)
    for row in rows:
        row.acceptance_length_is = None if row.acceptance_length is None else row.acceptance_length_is
        row.acceptance_by_position_is = row.acceptance_by_position_is if row.positions else None
    return rows
