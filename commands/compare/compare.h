// compare.h - `speclab compare`: results of several programs as rows of one table.
//
// A row has what its file states, and no more: NAN, 0 or NULL is "not stated". Numbers of two programs with one name may have different
// definitions, so a row names its own (speed_is, length_is), and rows are compared only where these, the machine and the prompts are the same.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct json;
struct text;

enum { COMPARED_POSITIONS = 8 };

struct compared {
    char *file;
    int line;         // of its object; 0: the row is of the whole file
    const char *tool; // "vllm bench serve"; a constant, as the three definitions
    char *model, *method, *prompts, *machine, *sampling;
    bool prompts_counted;    // `prompts` has only numbers of requests and tokens
    bool prompts_in_row;     // ... belongs to the row, not to the file: llama-bench's tests
    bool baseline;           // nothing was drafted
    bool lossy, inflated;    // speclab's marks
    int64_t requests, batch; // batch: sequences at once
    double tokens_per_s;
    const char *speed_is;
    double length; // acceptance length, the target's own token included
    const char *length_is;
    double rate; // accepted / drafted
    int positions;
    double position[COMPARED_POSITIONS]; // share with at least so many accepted
    const char *position_is;             // "of drafts" or "of steps"
    double ttft_ms, tpot_ms, latency_ms; // means; latency: of a whole request
    char *peers;                         // speclab: runs that share it were decoded in pairs
    int64_t run, none;                   // speclab: run.id, and that of the `none` of its pairs; 0: none, or several
    double paired_speedup;               // speclab: over that `none`, within pairs
    double speedup;                      // over the baseline of the comparison; NAN: none
    bool paired;                         // ... within pairs
    char *differs, *not_stated;          // why there is none, and what is not known to be the same; NULL: nothing
};

struct compared_rows {
    int n, capacity;
    struct compared *row; // (n)
};

struct compared *compared_add(struct compared_rows *to, const char *file, int line,
                              const char *tool); // valid until the next call
void compared_free(struct compared_rows *rows);
// The row that a user names: its number from 1, its file, or a part of the method of one row only. -1: err says which rows there are.
int compared_find(const struct compared_rows *rows, const char *name, struct error *err);
void compared_with(struct compared_rows *rows,
                   int baseline); // sets speedup, paired, differs and not_stated of every row

bool compared_read(struct compared_rows *to, const char *path, struct error *err); // a file of any form (file_forms.c)

// An object of a file, and where it was: one for a JSON object, several for an array, JSON Lines or CSV.
struct compared_objects {
    const char *path;
    int n, capacity;
    struct json **object; // (n)
    int *line;            // (n)
};

// One form of file: fits says whether an object is of it; read adds rows for all objects of a file, which are of it.
struct compared_form {
    const char *name; // for messages
    bool (*fits)(const struct json *o);
    bool (*read)(const struct compared_objects *from, struct compared_rows *to, struct error *err);
};
extern const struct compared_form vllm_serve_form, vllm_latency_form, vllm_throughput_form, sglang_form,
    llama_bench_form, llama_server_form, spec_bench_form, profile_form;
bool compared_read_database(struct compared_rows *to, const char *path, struct error *err);

// What readers share (fields.c): a number at `key`, not below 0; NAN if it is missing or null. Other values are errors with file, line and key.
bool field_number(const struct compared_objects *from, int i, const struct json *o, const char *key, double *to,
                  struct error *err);
bool field_needed(const struct compared_objects *from, int i, const struct json *o, const char *key, double *to,
                  struct error *err);
bool field_count(const struct compared_objects *from, int i, const struct json *o, const char *key, int64_t *to,
                 struct error *err); // 0: none
bool field_positions(const struct compared_objects *from, int i, const struct json *list, const char *key,
                     struct compared *to, struct error *err);
char *field_text(const struct json *o, const char *key); // NULL: no text; the caller's
bool field_fail(const struct compared_objects *from, int i, struct error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// What speclab's own files in another form say besides: drafter, prompts, machine, sampling, marks.
void field_facts(const struct json *o, struct compared *to);

// Output. width: columns of the terminal.
void compared_table(const struct compared_rows *rows, int baseline, int width, struct text *out);
void compared_markdown(const struct compared_rows *rows, int baseline, struct text *out);
void compared_csv(const struct compared_rows *rows, struct text *out);
void compared_jsonl(const struct compared_rows *rows, struct text *out);
// What the numbers mean and why rows cannot be compared, as sentences of this width; 0: as items of a Markdown list (notes.c).
void compared_notes(const struct compared_rows *rows, int baseline, int width, struct text *out);
void compared_sentence(struct text *out, int width, const char *s);
