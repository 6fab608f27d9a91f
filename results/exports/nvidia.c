// nvidia.c - NVIDIA's speculation profile, speculation_profile.json of Model-Optimizer's specdec_bench (schema 1.0): how well a drafter
// drafts, for deployment tools. The numbers are the views nvidia_*. Dynamo and AIConfigurator read conditional_accept_rates, vLLM's synthetic
// acceptance marginal_accept_rates.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/query.h"
#include "results/tally.h"

static const double TOLERANCE = 0.02; // specdec_bench's, of its mean_consistency

// Whether a chain of n draft tokens is the beginning of one of n + 1, so that the vectors hold for shorter drafts.
static bool is_chain(const struct exported *e, const char *kind)
{
    return e->run->trees == 0 &&
           (strcmp(kind, "small") == 0 || strcmp(kind, "eagle") == 0 || strcmp(kind, "eagle3") == 0);
}

// A rule that decides about a draft as a whole gives no vectors: that a token was accepted says something about later ones.
static bool whole_drafts(const char *rule)
{
    return strncmp(rule, "block", 5) == 0 && strncmp(rule, "blockwise", 9) != 0;
}

static struct json *rounded(double x)
{
    return json_new_number(round(x * 1e6) / 1e6);
}

static bool put_vectors(const struct exported *e, struct json *o, struct error *err)
{
    struct json *conditional = json_new_array(), *marginal = json_new_array();
    struct query *q =
        query_open(e->s, "SELECT conditional, marginal FROM nvidia_positions WHERE run = ?1 ORDER BY position");
    query_put_int(q, e->run->run);
    while (query_next(q)) {
        json_push(conditional, rounded(query_real(q, 0)));
        json_push(marginal, rounded(query_real(q, 1)));
    }
    json_set(o, "conditional_accept_rates", conditional);
    json_set(o, "marginal_accept_rates", marginal);
    return query_close(q, err);
}

static void put_no_vectors(struct json *o)
{
    json_set(o, "conditional_accept_rates", json_new_null());
    json_set(o, "marginal_accept_rates", json_new_null());
    json_set(
        o, "vectors_unavailable_reason",
        json_new_text(
            "the rule decides about the draft as a whole: its accepted tokens are no longest-prefix distribution"));
}

static bool put_histogram(const struct exported *e, struct json *o, struct error *err)
{
    struct json *histogram = json_new_object();
    struct query *q = query_open(e->s, "SELECT length, steps FROM nvidia_lengths WHERE run = ?1 ORDER BY length");
    query_put_int(q, e->run->run);
    while (query_next(q))
        json_set(histogram, query_text(q, 0), json_new_int(query_int(q, 1)));
    json_set(o, "acceptance_length_histogram", histogram);
    return query_close(q, err);
}

static bool put_categories(const struct exported *e, struct json *o, struct error *err)
{
    struct json *all = json_new_object();
    struct query *q =
        query_open(e->s, "SELECT category, mean_accept_length FROM nvidia_categories WHERE run = ?1 ORDER BY category");
    query_put_int(q, e->run->run);
    while (query_next(q)) {
        struct json *one = json_new_object();
        json_set(one, "mean_accept_length", rounded(query_real(q, 1)));
        json_set(all, query_text(q, 0), one);
    }
    json_set(o, "per_category", all);
    return query_close(q, err);
}

static struct json *conditions_of(const struct exported *e)
{
    struct json *o = export_facts(e);
    json_set(o, "engine", json_new_text("speclab"));
    json_set(o, "dataset", json_new_text(e->of->prompts));
    json_set(o, "num_samples", json_new_int(e->run->sequences));
    json_set(o, "concurrency", json_new_int(e->of->batch));
    return o;
}

static struct json *validation_of(double mean, double implied)
{
    struct json *o = json_new_object(), *consistency = json_new_object(), *monotonicity = json_new_object();
    json_set(consistency, "implied_mean_accept_length", rounded(implied));
    json_set(consistency, "reported_mean_accept_length", rounded(mean));
    json_set(consistency, "abs_delta", rounded(fabs(implied - mean)));
    json_set(consistency, "tolerance", json_new_number(TOLERANCE));
    json_set(consistency, "passed", json_new_bool(fabs(implied - mean) <= TOLERANCE));
    json_set(monotonicity, "passed", json_new_bool(true)); // shares of steps with at least so many tokens cannot rise
    json_set(monotonicity, "violations", json_new_array());
    json_set(o, "mean_consistency", consistency);
    json_set(o, "marginal_monotonicity", monotonicity);
    return o;
}

static bool put_profile(const struct exported *e, const struct query *row, struct json *o, struct error *err)
{
    const double mean = query_real(row, 1);
    char *length = xformat("%lld", (long long)query_int(row, 0));
    const char *kind = query_text(row, 4);
    struct json *by_length = json_new_object(), *target = json_new_object(), *draft = json_new_object();
    const bool whole = whole_drafts(e->run->rule);
    json_set(by_length, length, rounded(mean));
    json_set(target, "id", json_new_text(e->of->target));
    json_set(target, "precision", json_new_text(e->of->model_type));
    json_set(draft, "id", json_new_text(e->run->drafter));
    json_set(o, "schema_version", json_new_text("1.0"));
    json_set(o, "measured", json_new_bool(true));
    json_set(o, "method", json_new_text(strcmp(kind, "small") == 0 ? "draft_model" : kind));
    json_set(o, "draft_checkpoint", draft);
    json_set(o, "target_model", target);
    json_set(o, "num_speculative_tokens", json_new_int(query_int(row, 0)));
    json_set(o, "block_size", json_new_null());
    json_set(o, "max_supported_k", json_new_int(query_int(row, 0)));
    json_set(o, "verification_method", json_new_text(whole ? "block" : "longest_prefix"));
    bool ok = true;
    if (whole)
        put_no_vectors(o);
    else
        ok = put_vectors(e, o, err);
    json_set(o, "mean_accept_length", rounded(mean));
    json_set(o, "mean_accept_length_per_request", rounded(query_real(row, 2)));
    json_set(o, "accept_length_model", json_new_text(is_chain(e, kind) ? "chain_analytic" : "measured_per_k"));
    json_set(o, "accept_length_by_k", by_length);
    ok = ok && put_histogram(e, o, err) && put_categories(e, o, err);
    json_set(o, "measurement_conditions", conditions_of(e));
    json_set(o, "validation", whole ? json_new_null() : validation_of(mean, query_real(row, 3)));
    free(length);
    return ok;
}

bool export_nvidia_profile(const struct exported *e, struct text *to, struct error *err)
{
    struct json *o = json_new_object();
    struct query *q =
        query_open(e->s, "SELECT p.num_speculative_tokens, p.mean_accept_length, p.mean_accept_length_per_request,"
                         " p.implied_mean_accept_length, r.drafter_kind"
                         " FROM nvidia_profile AS p JOIN run AS r ON r.id = p.run WHERE p.run = ?1");
    query_put_int(q, e->run->run);
    const bool drafted = query_next(q);
    bool ok = !drafted || put_profile(e, q, o, err);
    ok = query_close(q, err) && ok;
    if (ok && drafted)
        export_line(to, o);
    else
        json_free(o);
    return ok;
}
