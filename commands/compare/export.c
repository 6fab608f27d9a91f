// export.c - a comparison as CSV and JSON Lines: all fields, with all digits; what a file does not state is empty, or null.
#include <math.h>
#include <stdlib.h>

#include "commands/compare/compare.h"
#include "core/csv.h"
#include "core/json.h"
#include "core/memory.h"

static struct json *text_value(const char *s)
{
    return s != NULL ? json_new_text(s) : json_new_null();
}

static struct json *count_value(int64_t n)
{
    return n > 0 ? json_new_int(n) : json_new_null();
}

// The fields of a row, in order; both forms are made of them.
static struct json *object_of(const struct compared *row, int number)
{
    struct json *o = json_new_object();
    json_set(o, "row", json_new_int(number));
    json_set(o, "file", json_new_text(row->file));
    json_set(o, "line", count_value(row->line));
    json_set(o, "tool", json_new_text(row->tool));
    json_set(o, "model", text_value(row->model));
    json_set(o, "method", text_value(row->method));
    json_set(o, "prompts", text_value(row->prompts));
    json_set(o, "machine", text_value(row->machine));
    json_set(o, "sampling", text_value(row->sampling));
    json_set(o, "requests", count_value(row->requests));
    json_set(o, "batch", count_value(row->batch));
    json_set(o, "lossy", json_new_bool(row->lossy));
    json_set(o, "inflated", json_new_bool(row->inflated));
    json_set(o, "tokens_per_s", json_new_number(row->tokens_per_s));
    json_set(o, "tokens_per_s_is", text_value(row->speed_is));
    json_set(o, "acceptance_length", json_new_number(row->length));
    json_set(o, "acceptance_length_is", text_value(row->length_is));
    json_set(o, "acceptance_rate", json_new_number(row->rate));
    json_set(o, "mean_ttft_ms", json_new_number(row->ttft_ms));
    json_set(o, "mean_tpot_ms", json_new_number(row->tpot_ms));
    json_set(o, "mean_latency_ms", json_new_number(row->latency_ms));
    json_set(o, "speedup", json_new_number(row->speedup));
    json_set(o, "speedup_in_pairs", json_new_bool(row->paired));
    json_set(o, "differs", text_value(row->differs));
    json_set(o, "not_stated", text_value(row->not_stated));
    json_set(o, "acceptance_by_position_is", text_value(row->positions > 0 ? row->position_is : NULL));
    return o;
}

void compared_jsonl(const struct compared_rows *rows, struct text *out)
{
    for (int i = 0; i < rows->n; i++) {
        struct json *o = object_of(&rows->row[i], i + 1), *list = json_new_array();
        for (int k = 0; k < rows->row[i].positions; k++)
            json_push(list, json_new_number(rows->row[i].position[k]));
        json_set(o, "acceptance_by_position", list);
        char *line = json_write(o);
        text_printf(out, "%s\n", line);
        free(line);
        json_free(o);
    }
}

static void put_value(struct text *out, const struct json *value, bool first)
{
    char *s = json_is_null(value)   ? xstrdup("")
              : json_is_text(value) ? xstrdup(json_text(value))
              : json_is_bool(value) ? xstrdup(json_bool(value) ? "1" : "0")
              : json_is_int(value)  ? xformat("%lld", (long long)json_int(value))
                                    : xformat("%.10g", json_number(value));
    csv_put(out, s, first);
    free(s);
}

void compared_csv(const struct compared_rows *rows, struct text *out)
{
    for (int i = 0; i < rows->n; i++) {
        struct json *o = object_of(&rows->row[i], i + 1);
        for (void *at = json_first(o); i == 0 && at != NULL; at = json_next(o, at))
            csv_put(out, json_key(at), at == json_first(o));
        for (int k = 1; i == 0 && k <= COMPARED_POSITIONS; k++)
            text_printf(out, ",acceptance_%d%s", k, k == COMPARED_POSITIONS ? "\r\n" : "");
        for (void *at = json_first(o); at != NULL; at = json_next(o, at))
            put_value(out, json_value(at), at == json_first(o));
        for (int k = 0; k < COMPARED_POSITIONS; k++)
            if (k < rows->row[i].positions)
                text_printf(out, ",%.10g", rows->row[i].position[k]);
            else
                text_puts(out, ",");
        text_puts(out, "\r\n");
        json_free(o);
    }
}
