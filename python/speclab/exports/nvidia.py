"""NVIDIA's speculation profile, speculation_profile.json of Model-Optimizer's specdec_bench (schema 1.0).

It tells deployment tools how well a drafter drafts. The numbers are the views nvidia_*. Dynamo and AIConfigurator read
conditional_accept_rates, vLLM's synthetic acceptance reads marginal_accept_rates.
"""

import math

from speclab.exports import dumps, runs

TOLERANCE = 0.02  # specdec_bench's tolerance of its mean_consistency
_CHAINS = ("small", "eagle", "eagle3")  # a chain of n draft tokens begins one of n + 1, so the vectors hold for shorter
                                       # drafts
_NO_VECTORS = "the rule decides about the draft as a whole: its accepted tokens are no longest-prefix distribution"


def _rounded(x: float) -> float:
    return math.floor(x * 1e6 + 0.5) / 1e6


def _validation(mean: float, implied: float) -> dict:
    consistency = {"implied_mean_accept_length": _rounded(implied), "reported_mean_accept_length": _rounded(mean),
                   # fmt: skip.
                   "abs_delta": _rounded(abs(implied - mean)), "tolerance": TOLERANCE, "passed": abs(implied - mean) <= TOLERANCE}
    # Shares of steps cannot rise.
    return {"mean_consistency": consistency, "marginal_monotonicity": {"passed": True, "violations": []}}


def files(results):
    queries = {"profile": "SELECT * FROM nvidia_profile", "lengths": "SELECT run, length, steps FROM nvidia_lengths ORDER BY run, length",
               "positions": "SELECT run, conditional, marginal FROM nvidia_positions ORDER BY run, position",
               # fmt: skip.
               "categories": "SELECT run, category, mean_accept_length FROM nvidia_categories ORDER BY run, category"}
    for run, of in runs(results, **queries):
        kind = run["drafter_kind"]
        for row in of.profile:
            depth, mean = row["num_speculative_tokens"], row["mean_accept_length"]
            whole = run["rule"].startswith("block") and not run["rule"].startswith("blockwise")
            vectors = {f"{key}_accept_rates": None if whole else [_rounded(p[key]) for p in of.positions] for key in ("conditional", "marginal")}
            if whole:
                vectors["vectors_unavailable_reason"] = _NO_VECTORS
            chain = run["trees"] == 0 and kind in _CHAINS
            profile = {
                "schema_version": "1.0", "measured": True, "method": "draft_model" if kind == "small" else kind,
                "draft_checkpoint": {"id": run["drafter"]}, "target_model": {"id": run["target"], "precision": run["model_type"]},
                "num_speculative_tokens": depth, "block_size": None, "max_supported_k": depth,
                "verification_method": "block" if whole else "longest_prefix", **vectors, "mean_accept_length": _rounded(mean),
                "mean_accept_length_per_request": _rounded(row["mean_accept_length_per_request"]),
                "accept_length_model": "chain_analytic" if chain else "measured_per_k", "accept_length_by_k": {str(depth): _rounded(mean)},
                "acceptance_length_histogram": {str(x["length"]): x["steps"] for x in of.lengths},
                "per_category": {x["category"]: {"mean_accept_length": _rounded(x["mean_accept_length"])} for x in of.categories},
                "measurement_conditions": run.facts | {"engine": "speclab", "dataset": run["prompt_file"], "num_samples": run["sequences"],
                                                       "concurrency": run["batch"]},
                "validation": None if whole else _validation(mean, row["implied_mean_accept_length"])}  # fmt: skip
            yield f"{run.name}.speculation_profile.json", dumps(profile) + "\n"
