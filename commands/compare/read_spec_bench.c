// read_spec_bench.c - answer files of Spec-Bench (evaluation/eval.py), whose numbers are those of its evaluation/speed.py: of the first choices.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

static bool is_answer(const struct json *o)
{
    return json_get(o, "question_id") != NULL && json_is_array(json_get(o, "choices"));
}

// The sum of an array of numbers of the first choice.
static bool sum_of(const struct compared_objects *from, int i, const char *key, double *to, struct error *err)
{
    const struct json *list = json_get(json_at(json_get(from->object[i], "choices"), 0), key);
    *to = 0;
    if (!json_is_array(list))
        return field_fail(from, i, err, "choices[0].%s: expected an array of numbers", key);
    for (size_t k = 0; k < json_count(list); k++) {
        const struct json *x = json_at(list, k);
        if (!json_is_number(x) || !(json_number(x) >= 0))
            return field_fail(from, i, err, "choices[0].%s[%zu]: expected a number of at least 0", key, k);
        *to += json_number(x);
    }
    return true;
}

struct answer_sums {
    double rates, tokens, steps;
    double at_least[COMPARED_POSITIONS]; // steps with so many tokens, from 2
    int deepest;
};

static bool add_answer(const struct compared_objects *from, int i, struct answer_sums *to, struct error *err)
{
    double tokens, seconds, lengths;
    const struct json *list = json_get(json_at(json_get(from->object[i], "choices"), 0), "accept_lengths");
    if (!sum_of(from, i, "new_tokens", &tokens, err) || !sum_of(from, i, "wall_time", &seconds, err) ||
        !sum_of(from, i, "accept_lengths", &lengths, err))
        return false;
    if (!(seconds > 0))
        return field_fail(from, i, err, "choices[0].wall_time: expected seconds above 0");
    to->rates += tokens / seconds;
    to->tokens += lengths;
    to->steps += (double)json_count(list);
    for (size_t k = 0; k < json_count(list); k++)
        for (int n = 0; n < COMPARED_POSITIONS && json_number(json_at(list, k)) >= n + 2; n++) {
            to->at_least[n]++;
            to->deepest = n + 1 > to->deepest ? n + 1 : to->deepest;
        }
    return true;
}

// Their number, and a hash of their ids: two files with the same one are about the same questions.
static char *questions(const struct compared_objects *from)
{
    struct digest *d = digest_begin();
    char hash[HASH_TEXT];
    for (int i = 0; i < from->n; i++) {
        char *id = json_write(json_get(from->object[i], "question_id"));
        digest_text(d, id);
        free(id);
    }
    hash_write(digest_end(d), hash);
    return xformat("%d questions %.8s", from->n, hash);
}

static bool read_answers(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    struct answer_sums sum = { 0 };
    struct compared *row = compared_add(to, from->path, 0, "Spec-Bench");
    for (int i = 0; i < from->n; i++)
        if (!add_answer(from, i, &sum, err))
            return false;
    row->method = field_text(from->object[0], "model_id");
    row->prompts = questions(from);
    row->requests = from->n;
    row->batch = 1;
    row->tokens_per_s = sum.rates / from->n;
    row->speed_is = "mean over questions of new tokens / wall time";
    row->baseline = sum.deepest == 0;
    if (sum.deepest > 0) {
        row->length = sum.tokens / sum.steps;
        row->length_is = "tokens / steps";
        row->positions = sum.deepest;
        row->position_is = "of steps";
        for (int n = 0; n < sum.deepest; n++)
            row->position[n] = sum.at_least[n] / sum.steps;
    }
    return true;
}

const struct compared_form spec_bench_form = { "Spec-Bench", is_answer, read_answers };

// ---- NVIDIA's speculation profile: a file of lengths only

static bool is_profile(const struct json *o)
{
    return json_get(o, "schema_version") != NULL && json_get(o, "marginal_accept_rates") != NULL;
}

static bool read_profile(const struct compared_objects *from, struct compared_rows *to, struct error *err)
{
    for (int i = 0; i < from->n; i++) {
        const struct json *o = from->object[i];
        struct compared *row = compared_add(to, from->path, from->line[i], "speculation profile");
        if (!field_number(from, i, o, "mean_accept_length", &row->length, err) ||
            !field_positions(from, i, json_get(o, "marginal_accept_rates"), "marginal_accept_rates", row, err))
            return false;
        row->length_is = "tokens / steps";
        row->position_is = "of steps";
        row->model = field_text(json_get(o, "target_model"), "id");
        row->method = field_text(o, "method");
        row->prompts = field_text(json_get(o, "measurement_conditions"), "dataset");
    }
    return true;
}

const struct compared_form profile_form = { "a speculation profile", is_profile, read_profile };
