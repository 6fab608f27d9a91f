"""make_views.py - recomputes every published number with plain loops over rows, independently of the SQL.

Writes views.json: what each view of results/views*.sql and each query of results/ must say about the rows of views_facts.sql.
docs/results.md defines the numbers; no SQL of these is read or run. Needs only the standard library:

    python -B make_views.py views.json
"""

import json
import sys

from view_exports import nvidia_categories, nvidia_lengths, nvidia_positions, nvidia_profile, setting, sglang_metrics, vllm_bench
from view_numbers import (
    PARTNER, SEQUENCE, VIEWS, acceptance, acceptance_by_prompt, acceptance_by_rank, against_by_prompt, against_by_slice, answer, bench_pass, by_rule, by_source, cost_of_pass, eagle, expected, gap, latency, medusa, outcome,
    run_summary, sequences, spec_bench, speed, speed_by_prompt, speed_by_slice, steps, steps_view, sums_by_prompt, sums_by_slice, sums_by_text,
    text_rounds, texts, timing, view, vllm_metrics,
)
from view_predictions import bench_of_run, cost_piece, costs, pass_view, predicted_time, prediction, prediction_by_length
from view_queries import PROMPTS, QUERIES, answers_query, bench_cost, by_category, losing_prompts, query, verify_cost
from view_report import against, answer_files, comparisons


def main():
    v = {}
    v["outcome"] = view("outcome", ["run", "prompt", "depth", "accepted", "cut"], outcome())
    v["depths"] = view("acceptance_by_prompt", ["run", "prompt", "depth"], acceptance_by_prompt())
    v["acceptance"] = view("acceptance", ["run", "depth"], acceptance())
    v["by_rank"] = view("acceptance_by_rank", ["run", "depth", "rank"], acceptance_by_rank())
    v["expected"] = view("expected", ["run"], expected())
    view("by_rule", ["run", "rule", "lossless"], by_rule())
    view("by_source", ["run", "source"], by_source())
    v["steps"] = view("steps", ["run"], steps_view())
    v["timing"] = view("timing", ["run"], timing(v["steps"]))
    view("paired", ["run", "sequence"], [dict(run=SEQUENCE[s]["run"], sequence=s, none=n["id"] if n else None) for s, n in PARTNER.items()])
    view("text_rounds", ["sequence", "round"], text_rounds())
    v["own_slices"] = view("sums_by_slice", ["run", "prompt", "unit"], sums_by_slice())
    gaps = view("gap", ["sequence", "step"], gap())
    view("latency", ["run", "what"], latency(gaps))
    of_texts = view("sums_by_text", ["sequence"], sums_by_text())
    v["sums"] = view("sums_by_prompt", ["run", "prompt"], sums_by_prompt(of_texts))
    v["against"] = view("against_by_prompt", ["run", "against", "in_pairs", "prompt"], against_by_prompt(of_texts))
    v["against_slices"] = view("against_by_slice", ["run", "against", "in_pairs", "sequence", "prompt", "unit", "new_tokens", "decode_ns"], against_by_slice(v["own_slices"]))
    v["slices"] = view("speed_by_slice", ["run", "prompt", "unit"], speed_by_slice())
    prompts = view("speed_by_prompt", ["run", "prompt"], speed_by_prompt(v["slices"]))
    v["speed"] = view("speed", ["run"], speed(v["own_slices"], v["slices"], prompts))
    v["texts"] = view("texts", ["run", "sequence"], texts())
    view("setting", ["run", "key"], setting())
    view("run_summary", ["run"], run_summary(v))
    view("vllm_metrics", ["run"], vllm_metrics())
    view("vllm_positions", ["run", "position"], [
        dict(run=a["run"], position=a["depth"] - 1, num_accepted_tokens=a["accepted"], num_drafts=a["drafts"], acceptance_rate=a["rate"])
        for a in v["acceptance"]])  # fmt: skip
    answers = view("answer", ["sequence"], answer())
    view("spec_bench", ["run"], spec_bench(answers))
    view("eagle", ["run"], eagle(v["acceptance"]))
    view("medusa", ["run"], medusa())
    view("vllm_bench", ["run"], vllm_bench())
    view("sglang_metrics", ["run"], sglang_metrics())
    view("nvidia_lengths", ["run", "length"], nvidia_lengths())
    view("nvidia_positions", ["run", "position"], nvidia_positions())
    view("nvidia_profile", ["run"], nvidia_profile())
    view("nvidia_categories", ["run", "category"], nvidia_categories())
    passes = view("bench_pass", ["bench", "placement", "what", "context", "n", "peer", "slots"], bench_pass())
    view("cost_of_pass", ["bench", "placement", "context", "n"], cost_of_pass(passes))
    every_pass, fitted = view("pass", ["sequence", "step"], pass_view()), view("bench_of_run", ["run"], bench_of_run())
    cost = costs(every_pass, passes, fitted)
    view("bench_piece", ["run", "above_rows", "above_context"], [{k: v for k, v in p.items() if k != "source"} for p in cost_piece(cost) if p["source"] == "bench"])
    view("cost_piece", ["run", "source", "above_rows", "above_context"], cost_piece(cost))
    times = view("predicted_time", ["run", "source"], predicted_time(every_pass, fitted, cost))
    lengths = view("prediction_by_length", ["run", "source", "length"], prediction_by_length(times, cost))
    view("prediction", ["run", "source"], prediction(times, cost, lengths, v["acceptance"], v["speed"]))
    query("answers", answers_query(answers))
    query("bench_cost", bench_cost(passes))
    query("by_category", by_category(prompts))
    query("losing_prompts", losing_prompts(prompts))
    query("verify_cost", verify_cost())

    with open(sys.argv[1], "w") as f:
        f.write('{"prompts": %s,\n' % json.dumps("\n".join(json.dumps(p, separators=(",", ":")) for p in PROMPTS) + "\n"))
        for part, last in (("views", ","), ("queries", ",")):
            f.write('"%s": {\n' % part)
            tables = VIEWS if part == "views" else QUERIES
            f.write(",\n".join("%s: %s" % (json.dumps(k), json.dumps(t, separators=(",", ":"))) for k, t in tables.items()))
            f.write("\n}%s\n" % last)
        f.write('"answer_files": {\n' + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(a, separators=(",", ":"))) for k, a in answer_files(answers).items()) + "\n},\n")
        f.write('"against": [\n' + ",\n".join(json.dumps(a, separators=(",", ":")) for a in against(v["against"], v["against_slices"])) + "\n],\n")
        f.write('"comparisons": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in comparisons(v, prompts)) + "\n]}\n")
    print(len(sequences), "texts,", len(steps), "steps,", sum(len(t["rows"]) for t in VIEWS.values()), "rows of", len(VIEWS), "views")


if __name__ == "__main__":
    main()
