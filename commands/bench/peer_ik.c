// peer_ik.c - ik_llama.cpp as a peer of `speclab bench --peer-command`: the protocol is that of peer_llama.py.
//
// It is not built with speclab but against a checkout of ik_llama.cpp; docs/performance.md has the commands. Settings are
// ik_llama.cpp's best for a processor: run-time repacking without mmap; fused up and gate and the reuse of graphs are its
// defaults. Each pass runs with or without flash attention, whichever was faster in a trial. Slots are sequences of one
// llama_batch; they share a cache, and a row visits the cells of all.
#include <llama.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef IK_VERSION
#define IK_VERSION "unknown version"
#endif
enum { LISTED = 16, MAX_ROWS = 512, CHUNK = 64, TRIALS = 4 };

struct list {
    int n, at[LISTED];
};

static FILE *answers;
static char last_error[512];
static char *path;
static int threads = 1, max_rows = 1, prompt;
static struct list contexts, slot_counts = { 1, { 1 } };
static struct llama_model *model;
static struct llama_batch batch;
static struct llama_context *filled[LISTED][LISTED][2], *empty[2]; // [context][slots][flash attention]
static signed char faster[LISTED][LISTED][MAX_ROWS + 1];           // of a pass: 1 + flash attention; 0: not tried
static signed char faster_prompt;

static void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(answers, "error ");
    vfprintf(answers, format, args);
    fprintf(answers, *last_error != '\0' ? ": %s\n" : "%s\n", last_error);
    va_end(args);
    exit(1);
}

static void keep_error(enum ggml_log_level level, const char *text, void *unused)
{
    (void)unused;
    if (level == GGML_LOG_LEVEL_ERROR && text[strspn(text, " .\n")] != '\0') {
        snprintf(last_error, sizeof(last_error), "%s", text);
        last_error[strcspn(last_error, "\n")] = '\0';
    }
}

static struct llama_context *create(int slots, int length, int flash)
{
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)(slots * length);
    p.n_seq_max = (uint32_t)slots;
    p.n_threads = p.n_threads_batch = (uint32_t)threads;
    if (p.n_batch < p.n_ctx)
        p.n_batch = p.n_ctx;
    p.flash_attn = flash != 0;
    struct llama_context *c = llama_init_from_model(model, p);
    if (c == NULL)
        refuse("ik_llama.cpp cannot create a context of %d x %d tokens", slots, length);
    return c;
}

// A pass of n rows after `cached` tokens of each of `slots` slots from `first` on; returns seconds.
static double decode(struct llama_context *c, int first, int slots, int cached, int n, int all_logits)
{
    struct timespec from, to;
    batch.n_tokens = slots * n;
    for (int i = 0; i < batch.n_tokens; i++) {
        batch.pos[i] = cached + i % n;
        batch.seq_id[i][0] = first + i / n;
        batch.logits[i] = all_logits || i == n - 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    int status = llama_decode(c, batch);
    llama_synchronize(c);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (status != 0)
        refuse("llama_decode returned %d for %d x %d rows after %d cached tokens", status, slots, n, cached);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

static double run_pass(struct llama_context *c, int slots, int cached, int n)
{
    double took = decode(c, 0, slots, cached, n, 1);
    for (int slot = 0; slot < slots; slot++)
        llama_kv_cache_seq_rm(c, slot, cached, -1);
    return took;
}

static double run_prompt(struct llama_context *c)
{
    llama_kv_cache_seq_rm(c, 0, 0, -1);
    return decode(c, 0, 1, 0, prompt, 0);
}

static void open_model(void)
{
    struct llama_model_params p = llama_model_default_params();
    p.use_mmap = false;
    p.repack_tensors = true;
    model = path != NULL ? llama_model_load_from_file(path, p) : NULL;
    if (model == NULL)
        refuse("ik_llama.cpp cannot read %s", path != NULL ? path : "a model without a path");
    int rows = max_rows * slot_counts.at[slot_counts.n - 1];
    rows = rows > prompt ? rows : prompt;
    rows = rows > CHUNK ? rows : CHUNK;
    batch = llama_batch_init(rows, 0, 1);
    unsigned x = 1;
    for (int i = 0; i < rows; i++) {
        x = x * 1664525u + 1013904223u;
        batch.token[i] = (llama_token)((x >> 8) % (unsigned)llama_n_vocab(model));
        batch.n_seq_id[i] = 1;
    }
    for (int flash = 0; flash < 2; flash++) {
        for (int k = 0; k < contexts.n; k++)
            for (int j = 0; j < slot_counts.n; j++) {
                int cached = contexts.at[k], slots = slot_counts.at[j];
                struct llama_context *c = filled[k][j][flash] = create(slots, cached + max_rows, flash);
                for (int slot = 0; slot < slots; slot++)
                    for (int at = 0; at < cached; at += CHUNK)
                        decode(c, slot, 1, at, cached - at < CHUNK ? cached - at : CHUNK, 0);
            }
        if (prompt > 0)
            empty[flash] = create(1, prompt, flash);
    }
    fprintf(answers,
            "ready ik_llama.cpp (" IK_VERSION
            ", run-time repacking, no mmap, flash attention where it is faster): %s\n",
            llama_print_system_info());
}

static int find(const struct list *l, int value)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == value)
            return i;
    refuse("%d was not announced", value);
    return 0;
}

static double answer_pass(int n, int cached, int slots)
{
    int k = find(&contexts, cached), j = find(&slot_counts, slots);
    if (n < 1 || n > max_rows || filled[k][j][0] == NULL)
        refuse("a pass of %d rows was not announced before \"open\"", n);
    signed char *best = &faster[k][j][n];
    if (*best == 0) {
        double least[2];
        for (int flash = 0; flash < 2; flash++)
            for (int i = 0; i < TRIALS; i++) {
                double took = run_pass(filled[k][j][flash], slots, cached, n);
                least[flash] = i == 0 || took < least[flash] ? took : least[flash];
            }
        *best = least[1] < least[0] ? 2 : 1;
    }
    run_pass(filled[k][j][*best - 1], slots, cached, n); // a warm-up, as in speclab
    return run_pass(filled[k][j][*best - 1], slots, cached, n);
}

static double answer_prompt(void)
{
    if (empty[0] == NULL)
        refuse("no prompt was announced before \"open\"");
    if (faster_prompt == 0) {
        double without = run_prompt(empty[0]);
        faster_prompt = run_prompt(empty[1]) < without ? 2 : 1;
    }
    return run_prompt(empty[faster_prompt - 1]);
}

static void read_list(const char *text, struct list *to)
{
    char *end;
    to->n = 0;
    for (long v = strtol(text, &end, 10); end != text; v = strtol(text = end, &end, 10)) {
        if (to->n == LISTED)
            refuse("expected at most %d numbers", LISTED);
        to->at[to->n++] = (int)v;
    }
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    answers = fdopen(dup(STDOUT_FILENO), "w"); // ik_llama.cpp may print to stdout
    setvbuf(answers, NULL, _IOLBF, 0);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    llama_log_set(keep_error, NULL);
    llama_backend_init();
    while (getline(&line, &capacity, stdin) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = line + strcspn(line, " ");
        if (*rest != '\0')
            *rest++ = '\0';
        struct list numbers;
        read_list(rest, &numbers);
        int number = numbers.n > 0 ? numbers.at[0] : 0;
        if (strcmp(line, "model") == 0)
            path = strdup(rest);
        else if (strcmp(line, "threads") == 0)
            threads = number;
        else if (strcmp(line, "rows") == 0 && number <= MAX_ROWS)
            max_rows = number;
        else if (strcmp(line, "prompt_tokens") == 0)
            prompt = number;
        else if (strcmp(line, "contexts") == 0)
            contexts = numbers;
        else if (strcmp(line, "slots") == 0 && numbers.n > 0 && fprintf(answers, "slots\n") > 0)
            slot_counts = numbers;
        else if (strcmp(line, "open") == 0)
            open_model();
        else if (strcmp(line, "pass") == 0 && numbers.n >= 2)
            fprintf(answers, "%.9f\n", answer_pass(number, numbers.at[1], numbers.n > 2 ? numbers.at[2] : 1));
        else if (strcmp(line, "prompt") == 0)
            fprintf(answers, "%.9f\n", answer_prompt());
        else
            refuse("unknown request \"%s\"", line);
    }
    return 0;
}
