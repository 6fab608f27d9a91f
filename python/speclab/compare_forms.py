"""compare_forms - whose results a file has, and the rows that its program's numbers make. Standard library alone.

A file is a database, or JSON, JSON lines or CSV whose objects one form knows by their keys. A number that is missing is not known; one beyond its
bound is an error that names file, line and key.
"""

import contextlib
import csv
import io
import re
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass

from speclab import database, files, strict_json
from speclab.command import Fault
from speclab.compared import POSITIONS, Row
from speclab.digest import content_hash

EXPECTED = ("expected results of vllm bench serve, latency or throughput, SGLang's bench_serving, llama-bench (json, jsonl, csv), llama-server, "
            "Spec-Bench, a speculation profile, published numbers, or a database of speclab")  # fmt: skip
PUBLISHED = ("method", "target", "dataset", "temperature", "tau", "speedup", "source")
LEAST_PUBLISHED = 4  # keys by which a file of published numbers is known; the others are then lacking


@dataclass
class Object:
    """An object of a file, and where it was; line None: the file is one object or an array."""

    path: str
    line: int | None
    value: dict

    def fault(self, message: str) -> Fault:
        return Fault(f"{self.path}{f':{self.line}' if self.line else ''}: {message}")

    def number(self, key: str, least: float = 0, most: float | None = None, of: dict | None = None) -> float | None:
        """The number at `key`; None: missing or null. Raises Fault for another value, or one out of bounds."""
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

    def count(self, key: str) -> int | None:
        """A count; 0 is "not stated" as well."""
        x = self.number(key)
        if x is not None and (x > 1e15 or x != int(x)):
            raise self.fault(f"{key}: expected a count up to 10^15, found {x:g}")
        return int(x or 0) or None

    def shares(self, key: str) -> list[float]:
        found = self.value.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self.fault(f"{key}: expected a list of shares, found {strict_json.described(found)}")
        for i, x in enumerate(found[:POSITIONS]):
            if not strict_json.is_number(x, 0, 1):
                raise self.fault(f"{key}[{i}]: expected a number from 0 to 1")
        return found[:POSITIONS]

    def facts(self, row: Row) -> Row:
        """What speclab's own files in another form say besides: drafter, prompts, machine, sampling, marks."""
        of = self.value.get("speclab")
        if isinstance(of, dict):
            row.method, row.machine, row.sampling = (text(of, k) or old for k, old in (("drafter", row.method), ("machine", row.machine),
                                                                                       ("sampling", row.sampling)))  # fmt: skip
            row.prompts_counted = row.prompts_counted and text(of, "prompts") is None
            row.prompts = text(of, "prompts") or row.prompts
            row.lossy, row.inflated = of.get("lossless") is False, of.get("marked_inflated") is True
        return row


def text(o, key: str) -> str | None:
    value = o.get(key) if isinstance(o, dict) else None
    return value if isinstance(value, str) and value else None


# ---- vLLM: vllm/benchmarks/serve.py, latency.py, throughput.py. They state neither machine nor prompts, unless --metadata machine=.. does.


def _serve(o: Object) -> Row:
    v = o.value
    row = Row(o.path, o.line, "speclab, vLLM's form" if isinstance(v.get("speclab"), dict) else "vllm bench serve",
              tokens_per_s=o.needed("output_throughput"), mean_ttft_ms=o.number("mean_ttft_ms"), mean_tpot_ms=o.number("mean_tpot_ms"),
              mean_latency_ms=o.number("mean_e2el_ms"), requests=o.count("completed"), batch=o.count("max_concurrency"),
              tokens_per_s_is="output tokens / duration of the benchmark",
              model=text(v, "model_id"), machine=text(v, "machine"), prompts_counted=True)  # fmt: skip
    tokens, rate, percent = o.count("total_input_tokens"), v.get("request_rate"), o.number("spec_decode_acceptance_rate", 0, 100)
    row.acceptance_length = o.number("spec_decode_acceptance_length", 1)
    row.positions, row.acceptance_by_position_is = o.shares("spec_decode_per_position_acceptance_rates"), "of drafts"
    row.acceptance_rate = None if percent is None else percent / 100
    row.acceptance_length_is = "1 + accepted / drafts"
    row.method = text(v, "label") if text(v, "label") != text(v, "backend") else None  # --label, which is the backend's name unless given
    if row.requests and tokens:  # with a rate of requests below infinity the traffic is part of what was asked
        row.prompts = f"{row.requests} requests, {tokens} prompt tokens" + (f", {rate:g} requests/s" if strict_json.is_number(rate) else "")
    return o.facts(row)


def _latency(o: Object) -> Row:
    return Row(o.path, o.line, "vllm bench latency", mean_latency_ms=1e3 * o.needed("avg_latency"))


def _throughput(o: Object) -> Row:
    return Row(o.path, o.line, "vllm bench throughput", tokens_per_s=o.needed("tokens_per_second"), requests=o.count("num_requests"),
               tokens_per_s_is="prompt and output tokens / time")  # fmt: skip


# ---- SGLang's bench_serving (sglang/benchmark/serving.py). accept_length is of the server since it started, not of the run.


def _sglang(o: Object) -> Row:
    v, server = o.value, o.value.get("server_info")
    row = Row(o.path, o.line, "speclab, SGLang's form" if isinstance(v.get("speclab"), dict) else "sglang bench_serving",
              tokens_per_s=o.needed("output_throughput"), acceptance_length=o.number("accept_length"), mean_ttft_ms=o.number("mean_ttft_ms"),
              mean_tpot_ms=o.number("mean_tpot_ms"), mean_latency_ms=o.number("mean_e2e_latency_ms"), requests=o.count("completed"),
              batch=o.count("max_concurrency"), tokens_per_s_is="output tokens / duration of the benchmark", model=text(server, "model_path"),
              method=text(v, "tag") or text(server, "speculative_algorithm"), prompts_counted=True)  # fmt: skip
    row.acceptance_length_is = "tokens / steps"
    name, tokens, rate = text(v, "dataset_name"), o.count("total_input_tokens"), v.get("request_rate")  # rate None: infinite
    limit = f", {rate:g} requests/s" if strict_json.is_number(rate) else f", {rate}" if isinstance(rate, str) else ""
    row.prompts = f"{name}, {row.requests} requests, {tokens} prompt tokens{limit}" if name and row.requests and tokens else None
    return o.facts(row)


# ---- llama.cpp: llama-bench measures passes without sampling, and drafts nothing; responses of llama-server count draft tokens in `timings`


def _llama_bench(all_of: list[Object]) -> list[Row]:
    others = re.compile("build_|cpu_info|gpu_info|model_|n_prompt|n_gen|n_depth|test_time|avg_|stddev_|samples_")
    settings = [key for key in all_of[0].value if not others.match(key) and len({strict_json.dumps(o.value.get(key, "")) for o in all_of}) > 1]
    rows = []
    for o in all_of:
        v, speed = o.value, o.needed("avg_ts")
        prompt, generated, depth = o.needed("n_prompt"), o.needed("n_gen"), o.number("n_depth") or 0
        test = "+".join([f"pp{prompt:.0f}"] * (prompt > 0) + [f"tg{generated:.0f}"] * (generated > 0)) + (f" @ d{depth:.0f}" if depth > 0 else "")
        model, cpu, threads = text(v, "model_filename"), text(v, "cpu_info"), v.get("n_threads")
        machine = [cpu, text(v, "gpu_info"), text(v, "backends") or "?", f"{threads:.0f} threads" if strict_json.is_number(threads) else None]
        rows.append(Row(o.path, o.line, "llama-bench", tokens_per_s=speed, prompts=test, prompts_in_row=True, batch=1,
                        method=test + "".join(f", {key}={strict_json.dumps(v[key])}" for key in settings if key in v),
                        tokens_per_s_is="prompt tokens / time of passes" if generated == 0 else
                        "generated tokens / time of passes, sampling excluded" if prompt == 0 else
                        "prompt and generated tokens / time of passes",
                        model=model and (model.rsplit("/", 1)[-1] or None), sampling="none: random tokens",
                        machine=", ".join(filter(None, machine)) if cpu else None))  # fmt: skip
    return rows


def _llama_server(all_of: list[Object]) -> list[Row]:
    prompt = tokens = ms = drafted = accepted = after_first = 0.0
    counted, drafts = 0, False
    for o in all_of:
        t = o.value["timings"]
        n, took, given = o.needed("predicted_n", t), o.needed("predicted_ms", t), o.needed("prompt_n", t)
        of_drafts = o.number("draft_n", of=t)
        of_accepted = o.number("draft_n_accepted", 0, of_drafts, of=t)
        prompt, tokens, ms = prompt + given, tokens + n, ms + took
        drafts = drafts or of_drafts is not None or of_accepted is not None
        if of_drafts is not None and of_accepted is not None:
            counted, drafted, accepted, after_first = counted + 1, drafted + of_drafts, accepted + of_accepted, after_first + max(n - 1, 0)
    if not ms > 0:
        raise all_of[0].fault("predicted_ms: expected a time above 0 in some response")
    row = Row(all_of[0].path, None, "llama-server", model=text(all_of[0].value, "model"), requests=len(all_of), prompts_counted=True,
              prompts=f"{len(all_of)} requests, {prompt:.0f} prompt tokens", tokens_per_s=1e3 * tokens / ms,
              tokens_per_s_is="generated tokens / time of generation", method="drafted" if drafts else "none")  # fmt: skip
    if counted == len(all_of):  # what a response without counters drafted is not known
        row.acceptance_rate = accepted / drafted if drafted > 0 else None
        if after_first > accepted:  # each other token is of a step of its own; the first is the prompt's
            row.acceptance_length, row.acceptance_length_is = after_first / (after_first - accepted), "tokens / steps, steps = tokens - accepted"
    return [row]


# ---- Spec-Bench's answer files (evaluation/eval.py): the numbers of its evaluation/speed.py, of the first choices; NVIDIA's speculation profile


def _list(o: Object, key: str) -> list[float]:
    choices = o.value["choices"]
    found = choices[0].get(key) if choices and isinstance(choices[0], dict) else None
    if not isinstance(found, list):
        raise o.fault(f"choices[0].{key}: expected an array of numbers")
    for i, x in enumerate(found):
        if not strict_json.is_number(x, 0):
            raise o.fault(f"choices[0].{key}[{i}]: expected a number of at least 0")
    return found


def _spec_bench(all_of: list[Object]) -> list[Row]:
    rates, lengths = 0.0, []
    for o in all_of:
        tokens, seconds = sum(_list(o, "new_tokens")), sum(_list(o, "wall_time"))
        lengths += _list(o, "accept_lengths")
        if not seconds > 0:
            raise o.fault("choices[0].wall_time: expected seconds above 0")
        rates += tokens / seconds
    # Two files with the same hash of their ids are about the same questions.
    ids = [strict_json.dumps(o.value["question_id"]).encode() for o in all_of]
    ids = content_hash(b"".join(struct.pack("<q", len(name)) + name for name in ids))
    row = Row(all_of[0].path, None, "Spec-Bench", method=text(all_of[0].value, "model_id"), prompts=f"{len(all_of)} questions {ids[:8]}",
              requests=len(all_of), batch=1, tokens_per_s=rates / len(all_of),
              tokens_per_s_is="mean over questions of new tokens / wall time")  # fmt: skip
    at_least = [sum(x >= n for x in lengths) for n in range(2, POSITIONS + 2)]
    if any(at_least):
        row.acceptance_length, row.acceptance_length_is = sum(lengths) / len(lengths), "tokens / steps"
        row.acceptance_by_position_is = "of steps"
        row.positions = [n / len(lengths) for n in at_least if n > 0]
    return [row]


def _profile(o: Object) -> Row:
    return Row(o.path, o.line, "speculation profile", acceptance_length=o.number("mean_accept_length", 1), acceptance_length_is="tokens / steps",
               positions=o.shares("marginal_accept_rates"), acceptance_by_position_is="of steps", model=text(o.value.get("target_model"), "id"),
               method=text(o.value, "method"), prompts=text(o.value.get("measurement_conditions"), "dataset"))  # fmt: skip


# ---- published numbers, which a person wrote down from a paper or a model card


def _published(o: Object) -> Row:
    lacking = [key for key in PUBLISHED if key not in o.value]
    if lacking:
        raise o.fault(f"{lacking[0]}: expected it beside {', '.join(key for key in PUBLISHED if key in o.value)}, found none")
    texts = {key: f"{x:.17g}" if strict_json.is_number(x := o.value[key]) else x for key in ("method", "target", "dataset", "source")}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise o.fault(f"{key}: expected a text, found {strict_json.described(value or None)}")
    given = {key: None if x == "" else x for key, x in o.value.items()}  # an empty field of CSV
    temperature, tau, speedup = (o.number(key, least, of=given) for key, least in (("temperature", 0), ("tau", 1), ("speedup", 0)))
    return Row(o.path, o.line, "published", model=texts["target"], method=texts["method"], prompts=texts["dataset"], source=texts["source"],
               sampling=None if temperature is None else f"temperature={temperature:g}", acceptance_length=tau, speedup=speedup,
               acceptance_length_is="tau, as published")  # fmt: skip


# ---- which form


def _each(read: Callable[[Object], Row]) -> Callable[[list[Object]], list[Row]]:
    return lambda all_of: [read(o) for o in all_of]


def _has(*keys: str) -> Callable[[dict], bool]:
    return lambda o: all(key in o for key in keys)


FORMS = [
    ("vllm bench serve", _has("output_throughput", "total_token_throughput"), _each(_serve)),
    ("vllm bench latency", _has("avg_latency", "latencies"), _each(_latency)),
    ("vllm bench throughput", _has("elapsed_time", "tokens_per_second"), _each(_throughput)),
    ("SGLang's bench_serving", _has("output_throughput", "accept_length"), _each(_sglang)),
    ("llama-bench", _has("build_commit", "avg_ts"), _llama_bench),
    ("llama-server", lambda o: isinstance(o.get("timings"), dict), _llama_server),
    ("Spec-Bench", lambda o: "question_id" in o and isinstance(o.get("choices"), list), _spec_bench),
    ("a speculation profile", _has("schema_version", "marginal_accept_rates"), _each(_profile)),
    ("published numbers", lambda o: sum(key in o for key in PUBLISHED) >= LEAST_PUBLISHED, _each(_published)),
]


def _rows(path: str, found: list[tuple[int | None, object]]) -> list[Row]:
    if not found:
        raise Fault(f"{path}: no results; {EXPECTED}")
    objects, form = [], None
    for line, value in found:
        o = Object(path, line, value)
        if not isinstance(value, dict):
            raise o.fault(f"not an object; {EXPECTED}")
        of = next((f for f in FORMS if f[1](value)), None)
        if of is None:
            raise o.fault(f"an object with other keys; {EXPECTED}")
        if form not in (None, of):
            raise o.fault(f"expected results of {form[0]} as before, found those of {of[0]}")
        form = of
        objects.append(o)
    return form[2](objects)


def _objects(content: str, path: str) -> list[tuple[int | None, object]]:
    """An object may extend over lines; several are one a line, so that the first line is one."""
    try:
        return [(None, strict_json.loads(content, path, lenient=True))]
    except Fault as whole:
        try:
            strict_json.loads(content.lstrip().split("\n", 1)[0], path, lenient=True)
        except Fault:
            raise whole from None
    return [(i, strict_json.loads(line, path, i, lenient=True)) for i, line in enumerate(content.split("\n"), 1) if line.strip(" \t\r")]


def _csv_value(field: str) -> float | str:
    with contextlib.suppress(ValueError):
        if field[:1] in tuple("0123456789-") and "_" not in field:
            return float(field)
    return field


def _csv(content: str, path: str) -> list[tuple[int | None, object]]:
    reader, found, head = csv.reader(io.StringIO(content, newline="")), [], None
    with contextlib.suppress(StopIteration):
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except csv.Error as why:
                raise Fault(f"{path}:{line}: {why}") from None
            if head is None:
                head = [name.strip() for name in row]
            elif row:
                if len(row) != len(head):
                    raise Fault(f"{path}:{line}: expected {len(head)} fields, found {'more' if len(row) > len(head) else len(row)}")
                found.append((line, dict(zip(head, map(_csv_value, row), strict=True))))
    return found


# ---- speclab's databases

_RUNS = """SELECT run, target AS model, drafter || CASE rule WHEN 'rejection' THEN '' ELSE '; ' || rule END AS method,
    prompt_file AS prompts, machine, sampling, peers, drafter_kind = 'none' AS baseline, NOT lossless AS lossy, marked_inflated AS inflated,
    sequences AS requests, batch, tokens_per_s,
    CASE WHEN drafter_kind <> 'none' THEN tokens_per_step END AS acceptance_length, acceptance_rate,
    speedup AS paired_speedup
    FROM run_summary WHERE sequences > 0 ORDER BY run"""
_NONE = """SELECT p.run, CASE WHEN min(q.run) = max(q.run) THEN min(q.run) END FROM paired AS p JOIN sequence AS q ON q.id = p.none GROUP BY p.run"""
_MEAN = "SELECT run, max(mean_ns) / 1e6 FROM latency WHERE what = ? GROUP BY run"


def _runs(db: sqlite3.Connection, path: str) -> list[Row]:
    with contextlib.closing(db), database.faults(path):  # each view once
        none, ttft, tpot = dict(db.execute(_NONE)), dict(db.execute(_MEAN, ["ttft"])), dict(db.execute(_MEAN, ["tpot"]))
        latency = dict(db.execute("SELECT run, mean_e2e_latency_ms FROM sglang_metrics"))
        positions: dict[int, list[float]] = {}
        for run, rate in db.execute("SELECT run, rate FROM acceptance WHERE depth <= ? ORDER BY run, depth", [POSITIONS]):
            positions.setdefault(run, []).append(rate)
        rows = []
        for values in database.dicts(db, _RUNS):
            run, baseline = values["run"], values.pop("baseline")
            values |= {"lossy": bool(values["lossy"]), "inflated": bool(values["inflated"])}
            row = Row(path, None, "speclab", tokens_per_s_is="new tokens / time of decoding, prefill excluded", acceptance_length_is="tokens / steps",
                      none=none.get(run), mean_ttft_ms=ttft.get(run), mean_tpot_ms=tpot.get(run),
                      mean_latency_ms=latency.get(run), **values)  # fmt: skip
            if not baseline:
                row.positions, row.acceptance_by_position_is = positions.get(run, []), "of drafts"
            rows.append(row)
    if not rows:
        raise Fault(f"{path}: no run has texts")
    return rows


def _read(path: str) -> list[Row]:
    head = b""
    if path != "-":
        with contextlib.suppress(Fault), files.open_input(path) as f:  # a database or a model may be larger than memory
            head = f.read(512)
    if head.startswith(b"SQLite format 3\0"):
        return _runs(database.connect(path), path)
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
    """The rows of a file of any form; "-" is stdin. Raises Fault."""
    rows = _read(path)
    for row in rows:
        row.acceptance_length_is = None if row.acceptance_length is None else row.acceptance_length_is
        row.acceptance_by_position_is = row.acceptance_by_position_is if row.positions else None
    return rows
