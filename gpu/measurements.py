"""measurements.py - what gpu.py measures, its profiles and its tables. p: the phases of gpu.py, which run programs and keep measurements."""
import csv
import json
import random
import re
import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path

PROMPTS = Path(__file__).resolve().parents[1] / "experiments/data/prompts.jsonl"


class Failed(Exception):
    """A phase has failed; the text names the reason if the log does not."""


class Skipped(Exception):
    """A phase cannot run here, for this reason."""


def experiment(p, folder, name, text, seconds=None, **words):
    """Runs an experiment with these words for its capitals; its database, and the failure of one that ended early."""
    for word, value in words.items():
        text = text.replace(word, json.dumps(str(value)) if isinstance(value, (str, Path)) else str(value))
    Path(folder, f"{name}.yaml").write_text(text)
    try:
        p.run(p.speclab, "run", f"{folder}/{name}.yaml", "--db", f"{folder}/{name}.db", seconds=seconds)
        return sqlite3.connect(f"{folder}/{name}.db"), None
    except Failed as e:
        return sqlite3.connect(f"{folder}/{name}.db"), e


def passes(p, how, *shapes):
    """Passes by `speclab bench`, with graphs as in a run. All shapes are measured, though one fails."""
    failures = []
    for shape in shapes:
        for device in ("cuda", "cublas") if "bf16" in shape else ("cuda",):
            try:
                bench(p, f"shape:{shape}", device, shape.replace(",type=", " "), **({"rows": "1,4,8,16,32,64", "contexts": "1024,8192,32768"} | how))
            except Failed as e:
                failures.append(e)
    if failures:
        raise failures[0]


def bench(p, model, device, what, **lists):
    """Emits what `speclab bench` measures. Medians by (slots, rows, context), in seconds."""
    text = p.run(p.speclab, "bench", model, "--device", device, *(w for k, v in lists.items() for w in (f"--{k}", v)), "--prefill", 0, "--repeats", 5,
                 "--activations", "bf16", "--cache", "bf16", "--no-probe", "--json")
    engine, found = "cublas" if device == "cublas" else "speclab", {}
    for m in json.loads(text[text.index('{"'):])["placements"][0]["medians"]:
        seconds = m["ns"]["median"] / 1e9
        found[m["slots"], m["n"], m["context"]] = seconds
        p.emit(engine=engine, what=what + (f", {m['slots']} slots" if m["slots"] > 1 else ""), rows=m["n"], context=m["context"], seconds=seconds,
               bytes=seconds * m["bytes_per_second"])
    return found


def profile(p):
    """Where the time of two kernels goes, by hardware counters: the product of 8B's gate in bf16, and attention over 8192 tokens, of one row."""
    if not shutil.which("ncu"):
        raise Skipped("ncu is not installed")
    attention = [p.speclab, "bench", "shape:llama-8b,layers=1,type=bf16", "--device", "cuda", "--activations", "bf16", "--cache", "bf16", "--rows", 1,
                 "--contexts", 8192, "--prefill", 0, "--repeats", 1]
    for kernel, skip, words in [("small_kernel", 2, [p.built / "bench_gpu", "cuda", "bf16", "1", "gate"]),
                                ("mma_kernel", 128, attention)]:  # after the passes that fill the cache
        text = p.run("ncu", "--clock-control", "none", "--kernel-name", f"regex:{kernel}", "--launch-skip", skip, "--launch-count", 1,
                     *(word for s in ("SpeedOfLight", "Occupancy", "WarpStateStats", "LaunchStats") for word in ("--section", s)),
                     "--page", "raw", "--csv", *words)
        rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
        if len(rows) < 2:
            raise Failed(f"{kernel}: expected a profiled kernel, found none")
        p.profiles += [profile_of(row, rows[0]) for row in rows[1:]]


FIGURES = {"time": "gpu__time_duration.sum", "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
           "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed", "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
           "instructions issued a cycle": "smsp__issue_active.avg.per_cycle_active", "registers": "launch__registers_per_thread"}
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


def profile_of(row, units):
    def number(text):
        return float(text.replace(",", "") or 0)

    figures = ", ".join(f"{name} {number(row[m]):.4g} {units[m]}".strip() if row.get(m) else f"{name} ?" for name, m in FIGURES.items())
    stalls = sorted(((number(row[k]), m[1]) for k in row if k and (m := STALL.fullmatch(k))), reverse=True)
    waits = ", ".join(f"{name} {value:.2f}" for value, name in stalls[:6] if value >= 0.005)
    return f"profile: {row.get('Kernel Name', '?')[:80]}: {figures}; waits: {waits or '?'}"


# ---- the loop

# EAGLE-1's tree (eagle_25 in drafters/trees/tree_published.c): a digit is a rank.
TREE = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001".split()
TOKENS_A_STEP = 3.3
LOOP = """name: loop
target: {model: MODEL, device: DEVICE, activations: bf16, cache: bf16}
prompts: {file: PROMPTS}
limits: {new_tokens: TOKENS, context: CONTEXT, ignore_end: true}
seed: 5
cells:
  sampling: [{temperature: 0}, {temperature: 1}]
  batch: SLOTS
"""
SYNTHETIC = LOOP + """  rule: [{kind: synthetic, rate: RATE}]
  drafter:
    - {kind: none}
    - {kind: eagle3, weights: HEAD, tree: TREE, pick: greedy, activations: bf16, cache: bf16}
"""
TEXTS = LOOP + """  drafter:
    - {kind: none}
    - {kind: ngram, longest: 3, shortest: 2, tokens: 4}
    - {kind: small, model: MODEL, tokens: 4, activations: bf16, cache: bf16}
"""


def rate_for(tokens):
    """The acceptance at which TREE gives so many tokens a step (verifier/rules/rejection.c)."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle, reached = (low + high) / 2, {"": 1.0}
        for path in sorted(TREE, key=len):
            reached[path] = reached[path[:-1]] * middle * (1 - middle) ** int(path[-1])
        low, high = (middle, high) if sum(reached.values()) < tokens else (low, middle)
    return round(high, 6)


def write_head(folder, t, ids):
    """An EAGLE-3 head with random weights in bf16, of the shape t of its target, that proposes evenly spaced ids; in the published form."""
    width, heads, kv, hidden = t["width"], t["heads"] * t["head_dim"], t["kv_heads"] * t["head_dim"], t["hidden"]
    shapes = {"fc": (width, 3 * width), "midlayer.self_attn.q_proj": (heads, 2 * width), "midlayer.self_attn.k_proj": (kv, 2 * width),
              "midlayer.self_attn.v_proj": (kv, 2 * width), "midlayer.self_attn.o_proj": (width, heads), "midlayer.mlp.gate_proj": (hidden, width),
              "midlayer.mlp.up_proj": (hidden, width), "midlayer.mlp.down_proj": (width, hidden), "midlayer.input_layernorm": (width,),
              "midlayer.hidden_norm": (width,), "midlayer.post_attention_layernorm": (width,), "norm": (width,), "lm_head": (ids, width)}
    draw, header, at, few, layers = random.Random(1), {}, 0, t["layers"] < 7, t["layers"]
    block = b"".join(struct.pack("<f", draw.gauss(0, 0.02))[2:] for _ in range(1 << 16))  # these repeat, which no time depends on
    spaced = struct.pack(f"<{ids}q", *(i * t["vocab"] // ids - i for i in range(ids)))
    bytes_of = {f"{name}.weight": 2 * s[0] * (s[1] if len(s) > 1 else 1) for name, s in shapes.items()} | {"d2t": len(spaced)}
    for (name, size), shape in zip(bytes_of.items(), [*shapes.values(), (ids,)], strict=True):
        header[name] = {"dtype": "I64" if name == "d2t" else "BF16", "shape": shape, "data_offsets": [at, at := at + size]}
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as f:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        f.write(struct.pack("<Q", len(text)) + text)
        for name, size in bytes_of.items():
            data = spaced if name == "d2t" else b"\x80\x3f" * (size // 2) if "norm" in name else block
            while size > 0:
                size -= f.write(data[:size])
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": 1,
        "num_attention_heads": t["heads"], "num_key_value_heads": t["kv_heads"], "head_dim": t["head_dim"], "vocab_size": t["vocab"],
        "draft_vocab_size": ids, "max_position_embeddings": t["context"], "rope_theta": t["rope_theta"], "rms_norm_eps": 1e-05, "hidden_act": "silu",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1 if few else 2, layers // 2, layers if few else layers - 3]}}))


def loop(p, device, few, how):
    """Decodes with 1, 4, 16 and 64 slots, and times passes of one row in as many slots, which are a step of `none` without its overhead."""
    slots = [1, 2, 4] if few else [1, 4, 16, 64]
    with tempfile.TemporaryDirectory() as name:
        folder, draw = Path(name), random.Random(1)
        words = {"DEVICE": device, "TOKENS": 12 if few else 64, "CONTEXT": 448 if few else 1024, "SLOTS": slots,
                 "RATE": rate_for(TOKENS_A_STEP), "HEAD": folder / "head", "TREE": [[int(rank) for rank in path] for path in TREE]}
        model = "shape:llama-8b,type=bf16" + (",layers=1,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=512" if few else "")
        if how == "synthetic":
            write_head(folder / "head", json.loads(p.run(p.speclab, "inspect", model, "--no-probe", "--json")), 200 if few else 32000)
        else:
            model = folder / "smollm2.gguf"
            p.run(p.built / "write_small_model", model) if few else p.carried_model(model)
        with open(folder / "prompts.jsonl", "w") as f:  # first turns only, so that no second turn starts between steps
            for i, row in enumerate(PROMPTS.read_text().splitlines()[:4 if few else 64]):
                turn = json.loads(row).get("turns", [None])[0] or json.loads(row)["prompt"]
                prompt = {"prompt": turn} if how == "texts" else {"input_ids": [draw.randrange(3, 200) for _ in range(128)]}
                f.write(json.dumps({"id": str(i), **prompt}) + "\n")
        c, failed = experiment(p, folder, "loop", SYNTHETIC if how == "synthetic" else TEXTS, 0.7 * p.left(), MODEL=model,
                               PROMPTS=folder / "prompts.jsonl", **words)
        context = 128 + words["TOKENS"] // 2
        alone = bench(p, model, device, f"{how}: a pass", rows=1, slots=",".join(map(str, slots)), contexts=context)
        c.row_factory = sqlite3.Row
        for r in map(dict, c.execute("SELECT s.* FROM run_summary AS s ORDER BY run")):
            step = r["decode_ns"] / 1e9 / r["steps"] * r["batch"]
            p.emit(engine="loop", what=how, overhead=step - alone[r["batch"], 1, context] if r["drafter_kind"] == "none" else None, step=step,
                   **{k: r[k] for k in ("drafter_kind", "sampling", "batch", "lossless", "finished", "tokens_per_s", "tokens_per_step", "speedup",
                                        "propose_share", "verify_share", "advance_share", "other_share")})
    if failed:
        raise failed


# ---- the table

def shown(seconds):
    unit, name = next(((u, n) for u, n in [(1, "s"), (1e-3, "ms")] if seconds >= u), (1e-6, "us"))
    return f"{seconds / unit:.3g} {name}"


def table_lines(lines):
    return "".join("| " + " | ".join(line) + " |\n" + ("|" + "---|" * len(line) + "\n" if i == 0 else "") for i, line in enumerate(lines))


def table_of(records):
    """Times as shares of the floor: the time to read what must be read, at the bandwidth of a copy measured on this device. A pass that only reads
    may exceed 100 %: reading is faster than copying. c is the time over that of one row. Engines are columns."""
    text, rows = "", {}
    copy = max((r["copy"] for r in records if r.get("what") == "bandwidth"), default=0)
    for r in records:
        if r["what"] == "bandwidth":
            text += (f"{r['device']}: reads {r['read'] / 1e12:.3g} TB/s, copies {r['copy'] / 1e12:.3g} TB/s (read and written). "
                     "Shares are of the latter.\n\n")
        elif r["engine"] == "probe":
            text += f"{r['what']}: {shown(r['seconds'])}\n\n"
        elif r["engine"] != "loop":
            rows.setdefault((r["what"], r.get("context", ""), r.get("rows", "")), {})[r["engine"]] = r
    cells = [r for r in records if r["engine"] == "loop"]
    if cells:
        text += "Phases are shares of a step. overhead: a step of none beyond its pass. *: LOSSY, for timing only.\n\n" + table_lines([
            "what,sampling,slots,drafter,tokens/s,tokens per step,speedup,step,overhead,propose,verify,advance,other".split(","),
            *([r["what"], r["sampling"], str(r["batch"]), r["drafter_kind"] + "*" * (not r["lossless"]) + " (part)" * (not r["finished"]),
               f"{r['tokens_per_s'] or 0:.0f}", f"{r['tokens_per_step'] or 0:.2f}", f"{r['speedup'] or 1:.2f}", shown(r["step"]),
               "" if r["overhead"] is None else ("-" if r["overhead"] < 0 else "") + shown(abs(r["overhead"])),
               *(f"{100 * (r[k + '_share'] or 0):.0f} %" for k in ("propose", "verify", "advance", "other"))] for r in cells)]) + "\n"
    engines = sorted({e for by in rows.values() for e in by}, key=lambda e: (e != "speclab", e))
    lines = [["what", "context", "n", *engines]]
    for (what, context, n), by in rows.items():
        one, line = rows.get((what, context, 1), {}), [what, str(context), str(n)]
        for e in engines:
            r = by.get(e)
            c = f", c {r['seconds'] / one[e]['seconds']:.2f}" if r and e in one and n != 1 else ""
            share = f"{100 * r['bytes'] / copy / r['seconds']:.0f} % " if r and copy and r.get("bytes") else ""
            line.append(f"{share}({shown(r['seconds'])}{c})" if r else "")
        lines.append(line)
    return text + (table_lines(lines) + "\n" if rows else "")
