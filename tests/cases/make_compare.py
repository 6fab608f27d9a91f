"""make_compare.py - results in the forms that `speclab compare` reads, and the rows that it must make of them, by plain loops.

    python -B make_compare.py compare

Writes the files of the folder but llama_bench.*, which llama-bench wrote (llama.cpp of llama-cpp-python 0.3.36; `llama-bench -m
smollm2-135m-instruct.gguf -p 64 -n 16 -pg 32,8 -d 0,32 -r 2 -t 2 -o json`, jsonl, csv, on a busy machine: their speeds mean nothing), and
expected.json. Requests are made up; what a file says about them is computed as the program does that writes such files:

    vllm_serve.jsonl, vllm_plain.json   vllm/benchmarks/serve.py (009e6d4): --append-result, --save-result; with --metadata machine=..
    vllm_latency.json                   vllm/benchmarks/latency.py (00cae07)
    vllm_throughput.json                vllm/benchmarks/throughput.py (0202831)
    sglang.jsonl                        sglang/benchmark/serving.py (sglang 0.5.23)
    llama_server.jsonl                  tools/server/server-common.cpp: `timings` of responses (llama.cpp as above)
    spec_bench.jsonl, _plain.jsonl      evaluation/eval.py of hemingkx/Spec-Bench (fd2c1cd)
    profile.json                        Model-Optimizer's speculation_profile.json (edf879d), keys that are read

Needs only the standard library."""

import csv
import json
import os
import random
import sys

folder = sys.argv[1]
dice = random.Random(28)
EXPECTED = []


def write(name, *objects, indent=None):
    with open(os.path.join(folder, name), "w") as f:
        f.write("\n".join(json.dumps(o, indent=indent) for o in objects) + ("\n" if len(objects) > 1 else ""))


def expect(file, **row):
    EXPECTED.append(dict(file=file, **row))


def requests(n, longest):
    """Of each: prompt tokens, time to first token, and (seconds, tokens drafted, tokens accepted) of its steps."""
    out = []
    for _ in range(n):
        steps = []
        for _ in range(dice.randint(5, 12)):
            drafted = dice.randint(0, longest)
            accepted = 0
            while accepted < drafted and dice.random() < 0.6:
                accepted += 1
            steps.append((dice.uniform(0.01, 0.02), drafted, accepted))
        out.append((dice.randint(10, 90), dice.uniform(0.05, 0.2), steps))
    return out


def tokens(r):
    return 1 + sum(a + 1 for _, _, a in r[2])  # the first one comes from the prompt


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def serve(rs, concurrency, **more):
    duration = sum(r[1] + sum(t for t, _, _ in r[2]) for r in rs) / concurrency
    out, given = sum(map(tokens, rs)), sum(r[0] for r in rs)
    ttft, tpot = mean(r[1] for r in rs), mean(sum(t for t, _, _ in r[2]) / (tokens(r) - 1) for r in rs)
    return duration, dict(
        duration=duration, completed=len(rs), total_input_tokens=given, total_output_tokens=out, request_throughput=len(rs) / duration,
        output_throughput=out / duration, mean_ttft_ms=1e3 * ttft, mean_tpot_ms=1e3 * tpot, **more)  # fmt: skip


def acceptance(rs):
    drafts = [(d, a) for r in rs for _, d, a in r[2] if d > 0]
    accepted, drafted = sum(a for _, a in drafts), sum(d for d, _ in drafts)
    return dict(rate=accepted / drafted, length=1 + accepted / len(drafts), drafts=len(drafts), drafted=drafted, accepted=accepted,
                by_position=[sum(a > i for _, a in drafts) / len(drafts) for i in range(max(d for d, _ in drafts))])  # fmt: skip


def vllm():
    lines = []
    for i, concurrency in enumerate((1, 4)):
        rs = requests(20, 3)
        a = acceptance(rs)
        duration, o = serve(rs, concurrency, failed=0, request_goodput=None)
        lines.append(dict(
            date="20261124-120000", endpoint_type="openai", backend="openai", label="eagle3", model_id="meta-llama/Llama-3.1-8B-Instruct",
            tokenizer_id="meta-llama/Llama-3.1-8B-Instruct", num_prompts=20, machine="H100", request_rate="inf" if concurrency == 1 else 2.5, burstiness=1.0, max_concurrency=concurrency, **o,
            total_token_throughput=(o["total_input_tokens"] + o["total_output_tokens"]) / duration, spec_decode_acceptance_rate=100 * a["rate"],
            spec_decode_acceptance_length=a["length"], spec_decode_num_drafts=a["drafts"], spec_decode_draft_tokens=a["drafted"],
            spec_decode_accepted_tokens=a["accepted"], spec_decode_per_position_acceptance_rates=a["by_position"]))  # fmt: skip
        expect("vllm_serve.jsonl", line=i + 1, tool="vllm bench serve", model="meta-llama/Llama-3.1-8B-Instruct", method="eagle3", machine="H100",
               batch=concurrency, tokens_per_s=o["output_throughput"], acceptance_length=a["length"], acceptance_rate=a["rate"],
               acceptance_by_position=a["by_position"], mean_ttft_ms=o["mean_ttft_ms"], mean_tpot_ms=o["mean_tpot_ms"],
               prompts="20 requests, %d prompt tokens%s" % (o["total_input_tokens"], "" if concurrency == 1 else ", 2.5 requests/s"))  # fmt: skip
    write("vllm_serve.jsonl", *lines)
    rs = requests(20, 0)
    duration, o = serve(rs, 1, failed=0, request_goodput=None)
    given = lines[0]["total_input_tokens"]  # the same prompts
    o["total_input_tokens"] = given
    write("vllm_plain.json", dict(
        date="20261124-120500", endpoint_type="openai", backend="openai", label="plain", model_id="meta-llama/Llama-3.1-8B-Instruct",
        tokenizer_id="meta-llama/Llama-3.1-8B-Instruct", num_prompts=20, machine="H100", request_rate="inf", burstiness=1.0, max_concurrency=1, **o,
        total_token_throughput=(given + o["total_output_tokens"]) / duration))  # fmt: skip
    expect("vllm_plain.json", line=None, tool="vllm bench serve", method="plain", machine="H100", batch=1, tokens_per_s=o["output_throughput"], acceptance_length=None,
           acceptance_rate=None, acceptance_by_position=[], mean_ttft_ms=o["mean_ttft_ms"])  # fmt: skip
    seconds = [dice.uniform(1.0, 1.2) for _ in range(30)]
    ordered = sorted(seconds)
    percentile = {str(p): ordered[round(29 * p / 100)] for p in (10, 25, 50, 75, 90, 99)}
    write("vllm_latency.json", dict(avg_latency=mean(seconds), std_latency=0.06, latencies=seconds, percentiles=percentile), indent=4)
    expect("vllm_latency.json", tool="vllm bench latency", tokens_per_s=None, mean_latency_ms=1e3 * mean(seconds), model=None)
    write("vllm_throughput.json", dict(elapsed_time=12.5, num_requests=100, total_num_tokens=40000, requests_per_second=8.0, tokens_per_second=3200.0), indent=4)
    expect("vllm_throughput.json", tool="vllm bench throughput", tokens_per_s=40000 / 12.5, requests=100, tokens_per_s_is="prompt and output tokens / time")


def sglang():
    lines = []
    for i, (longest, algorithm) in enumerate(((3, "EAGLE3"), (0, None))):
        rs = requests(16, longest)
        length = sum(a + 1 for r in rs for _, _, a in r[2]) / sum(len(r[2]) for r in rs) if longest else None
        duration, o = serve(rs, 8)
        e2e = [r[1] + sum(t for t, _, _ in r[2]) for r in rs]
        lines.append(dict(
            tag=None, backend="sglang", dataset_name="sharegpt", request_rate=float("inf"), max_concurrency=8, sharegpt_output_len=None, random_input_len=1024,
            random_output_len=1024, random_range_ratio=0.0, server_info=dict(model_path="Qwen/Qwen3-8B", speculative_algorithm=algorithm), **o,
            input_throughput=o["total_input_tokens"] / duration, total_throughput=(o["total_input_tokens"] + o["total_output_tokens"]) / duration,
            mean_e2e_latency_ms=1e3 * mean(e2e), concurrency=sum(e2e) / duration, accept_length=length))  # fmt: skip
        expect("sglang.jsonl", line=i + 1, tool="sglang bench_serving", model="Qwen/Qwen3-8B", method=algorithm, batch=8, tokens_per_s=o["output_throughput"],
               acceptance_length=length, mean_latency_ms=1e3 * mean(e2e), mean_ttft_ms=o["mean_ttft_ms"],
               prompts="sharegpt, 16 requests, %d prompt tokens" % o["total_input_tokens"])  # fmt: skip
    write("sglang.jsonl", *lines)


def llama_server():
    rs, lines = requests(6, 4), []
    for r in rs:
        ms, n = 1e3 * sum(t for t, _, _ in r[2]), tokens(r)
        lines.append(dict(model="qwen3-8b-q4_k_m", choices=[], timings=dict(
            cache_n=0, prompt_n=r[0], prompt_ms=1e3 * r[1], prompt_per_second=r[0] / r[1], predicted_n=n, predicted_ms=ms, predicted_per_token_ms=ms / n,
            predicted_per_second=1e3 * n / ms, draft_n=sum(d for _, d, _ in r[2]), draft_n_accepted=sum(a for _, _, a in r[2]))))  # fmt: skip
    write("llama_server.jsonl", *lines)
    steps = sum(len(r[2]) for r in rs)
    expect("llama_server.jsonl", tool="llama-server", model="qwen3-8b-q4_k_m", requests=6, acceptance_length=sum(a + 1 for r in rs for _, _, a in r[2]) / steps,
           acceptance_rate=acceptance(rs)["rate"], tokens_per_s=sum(map(tokens, rs)) / sum(t for r in rs for t, _, _ in r[2]))  # fmt: skip


def spec_bench():
    for name, longest in (("spec_bench.jsonl", 4), ("spec_bench_plain.jsonl", 0)):
        lines, rates, lengths = [], [], []
        model = "vicuna-7b-v1.3-%s-float16" % ("eagle" if longest else "vanilla")
        for q in range(8):
            turns = requests(2 if q < 4 else 1, longest)
            own = [[a + 1 for _, _, a in r[2]] for r in turns]
            times = [r[1] + sum(t for t, _, _ in r[2]) for r in turns]
            lines.append(dict(question_id=81 + q, category="writing" if q < 4 else "math_reasoning", answer_id="x%d" % q, model_id=model, choices=[dict(
                index=0, turns=["text"] * len(turns), decoding_steps=[len(o) for o in own], new_tokens=[sum(o) for o in own], wall_time=times,
                accept_lengths=[n for o in own for n in o])], tstamp=1763985600.5 + q))  # fmt: skip
            rates.append(sum(map(sum, own)) / sum(times))
            lengths += [n for o in own for n in o]
        write(name, *lines)
        expect(name, tool="Spec-Bench", method=model, requests=8, batch=1, tokens_per_s=mean(rates), acceptance_length=mean(lengths) if longest else None,
               acceptance_by_position=[sum(n >= i + 2 for n in lengths) / len(lengths) for i in range(max(lengths) - 1)])  # fmt: skip


def profile():
    marginal = [0.816082, 0.63375, 0.475054]
    write("profile.json", dict(schema_version="1.0", measured=True, method="dflash", target_model={"id": "MiniMaxAI/MiniMax-M2.7"}, num_speculative_tokens=3,
                               conditional_accept_rates=[0.816082, 0.776577, 0.749591], marginal_accept_rates=marginal, mean_accept_length=2.924887,
                               measurement_conditions={"dataset": "mt_bench"}), indent=2)  # fmt: skip
    expect("profile.json", tool="speculation profile", model="MiniMaxAI/MiniMax-M2.7", method="dflash", acceptance_length=2.924887, acceptance_by_position=marginal,
           prompts="mt_bench", tokens_per_s=None)  # fmt: skip


def llama_bench():
    def path(name):
        return os.path.join(folder, name)

    for name in ("llama_bench.json", "llama_bench.jsonl", "llama_bench.csv"):
        text = open(path(name), newline="").read()
        rows = json.loads(text) if name.endswith("json") else [json.loads(t) for t in text.splitlines()] if name.endswith("jsonl") else list(csv.DictReader(open(path(name))))
        for i, r in enumerate(rows):
            p, g, d = int(r["n_prompt"]), int(r["n_gen"]), int(r["n_depth"])
            test = "+".join(x for x in ("pp%d" % p if p else "", "tg%d" % g if g else "") if x) + (" @ d%d" % d if d else "")
            line = None if name.endswith("json") else i + (2 if name.endswith("csv") else 1)
            expect(name, line=line, tool="llama-bench", model="smollm2-135m-instruct.gguf", method=test, prompts=test, machine="AMD EPYC, CPU, 2 threads",
                   tokens_per_s=float(r["avg_ts"]), acceptance_length=None, batch=1)  # fmt: skip


os.makedirs(folder, exist_ok=True)
for part in (vllm, sglang, llama_server, spec_bench, profile, llama_bench):
    part()
with open(os.path.join(folder, "expected.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(e) for e in EXPECTED) + "\n]\n")
print(len(EXPECTED), "rows")
