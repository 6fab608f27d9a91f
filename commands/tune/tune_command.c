// tune_command.c - `speclab tune`: settings of drafters for one target on one machine (setting_tune.h); or, given training texts, the layers
// and the draft length of the drafter layer_skip.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/features/texts.h"
#include "commands/tune/layer_scores.h"
#include "commands/tune/layer_search.h"
#include "commands/tune/setting_tune.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/layer_list.h"

struct tune {
    const char *model;
    long long least, positions, exchanges, context, threads;
    struct precision precision;
    int packed; // enum packed_how

    struct target target;
    struct text_reader reader;
    struct texts texts;
    struct layer_scores *choosing, *held_out;
    struct layer_search search;
    const volatile int *stop;

    bool *best_kept; // (layers) of the best row so far
    double best_speedup;
    int best_tokens, best_layers;
};

struct tune_row {
    struct layer_score chosen, held_out;
    double cost, speedup; // of a draft token, relative to the target's pass of one row; predicted at temperature 0
    int tokens;           // with which the speedup is best
};

// ---- what is searched

static bool scores(void *self, const bool *kept, int n, double *to, struct error *err)
{
    struct tune *t = self;
    struct layer_score *score = xcalloc((size_t)n, sizeof(*score));
    const bool ok = layer_scores_of(t->choosing, kept, n, score, t->stop, err);
    for (int i = 0; i < n && ok; i++)
        to[i] = score[i].overlap;
    free(score);
    return ok;
}

// Tokens of a step over its time, against those of plain decoding, if every draft token is accepted with probability a once those before
// it are (Leviathan et al. 2023, arXiv 2211.17192, section 3.3).
static double predicted(double a, int tokens, const struct layer_cost *c, double draft)
{
    double expected = 1, alive = 1;
    for (int i = 0; i < tokens; i++) {
        alive *= a;
        expected += alive;
    }
    return expected * c->pass[1] / (tokens * draft + c->pass[tokens + 1]);
}

static bool evaluate(struct tune *t, struct tune_row *to, struct error *err)
{
    struct layer_cost cost;
    double draft;
    if (!layer_scores_of(t->choosing, t->search.kept, 1, &to->chosen, t->stop, err) ||
        !layer_scores_of(t->held_out, t->search.kept, 1, &to->held_out, t->stop, err) ||
        !layer_scores_time(t->choosing, t->search.kept, &cost, &draft, err))
        return false;
    to->cost = draft / cost.pass[1];
    to->speedup = 0;
    for (int n = 1; n <= MAX_DRAFT; n++) {
        const double speedup = predicted(to->held_out.match, n, &cost, draft);
        if (speedup > to->speedup) {
            to->speedup = speedup;
            to->tokens = n;
        }
    }
    return true;
}

// ---- output

static void print_head(const struct tune *t)
{
    printf("%s: %d layers, of which some draft (%s)\n", t->model, t->search.layers,
           t->target.backend->describe(t->target.backend));
    printf("chosen by %d positions, held out %d others, of other texts\n\n", layer_scores_positions(t->choosing),
           layer_scores_positions(t->held_out));
    printf("          T = 0            T = 1        a draft token      predicted, T = 0\n");
    printf("layers  chosen held out  chosen held out  cost / pass  tokens  speedup  change\n");
}

static void print_row(const struct tune *t, const struct tune_row *r, const char *change)
{
    int n = 0;
    for (int i = 0; i < t->search.layers; i++)
        n += t->search.kept[i];
    printf("%6d  %6.3f %8.3f  %6.3f %8.3f  %11.2f  %6d  %6.2fx  %s\n", n, r->chosen.match, r->held_out.match,
           r->chosen.overlap, r->held_out.overlap, r->cost, r->tokens, r->speedup, change);
    fflush(stdout);
}

static void remember(struct tune *t, const struct tune_row *r)
{
    if (r->speedup <= t->best_speedup)
        return;
    t->best_speedup = r->speedup;
    t->best_tokens = r->tokens;
    memcpy(t->best_kept, t->search.kept, (size_t)t->search.layers * sizeof(*t->best_kept));
}

static char *list_of(const struct tune *t, const bool *kept)
{
    int *layer = xcalloc((size_t)t->search.layers, sizeof(*layer)), n = 0;
    for (int i = 0; i < t->search.layers; i++)
        if (kept[i])
            layer[n++] = i;
    char *list = layer_list_write(layer, n);
    free(layer);
    return list;
}

static void print_best(const struct tune *t)
{
    char *list = list_of(t, t->best_kept);
    printf("\n{kind: layer_skip, keep: \"%s\", tokens: %d}\n", list, t->best_tokens);
    if (t->best_speedup < 1)
        printf("It is not predicted to gain: %.2fx.\n", t->best_speedup);
    free(list);
}

// ---- the search

static bool remove_layers(struct tune *t, struct error *err)
{
    struct tune_row row;
    for (int n = t->search.layers - 1; n >= t->least; n--) {
        int removed;
        if (!layer_search_remove(&t->search, &removed, err) || !evaluate(t, &row, err))
            return false;
        char *change = xformat("without %d", removed);
        print_row(t, &row, change);
        free(change);
        remember(t, &row);
    }
    return true;
}

// Exchanges layers of the best set.
static bool exchange_layers(struct tune *t, struct error *err)
{
    struct tune_row row;
    struct layer_score now;
    memcpy(t->search.kept, t->best_kept, (size_t)t->search.layers * sizeof(*t->best_kept));
    if (!layer_scores_of(t->choosing, t->search.kept, 1, &now, t->stop, err))
        return false;
    t->search.score = now.overlap;
    for (int i = 0; i < t->exchanges; i++) {
        bool better;
        if (!layer_search_exchange(&t->search, &better, err))
            return false;
        if (!better)
            break;
        if (!evaluate(t, &row, err))
            return false;
        char *list = list_of(t, t->search.kept), *change = xformat("exchanged: %s", list);
        print_row(t, &row, change);
        remember(t, &row);
        free(change);
        free(list);
    }
    return true;
}

// Twice as many texts as are scored at a time: half of them to choose by.
static bool read_texts(struct tune *t, const char *path, struct error *err)
{
    const struct model_shape *s = model_shape(t->target.model);
    const int64_t tokens = 2 * SCORED_TEXTS * t->context;
    if (!text_reader_open(&t->reader, path, s->vocab, (int)t->context, 2 * SCORED_TEXTS, err) ||
        !text_reader_next(&t->reader, tokens, &t->texts, err))
        return false;
    return t->texts.n >= 2 ||
           fail(err, "%s: expected at least 2 conversations, to choose by one and evaluate with the other; found %d",
                path, t->texts.n);
}

static bool tune(struct tune *t, char **operand, struct error *err)
{
    const struct target_options options = {
        .precision = t->precision, .threads = (int)t->threads, .packed = t->packed, .log = command_log
    };
    if (!target_open(&t->target, operand[0], &options, err))
        return false;
    const int layers = model_shape(t->target.model)->layers;
    t->context =
        t->context < model_shape(t->target.model)->context ? t->context : model_shape(t->target.model)->context;
    t->least = t->least > 0 ? t->least : (layers + 1) / 2;
    if (t->least >= layers)
        return fail(err, "--least %lld: expected fewer than the %d layers of %s", t->least, layers, operand[0]);
    if (!read_texts(t, operand[1], err))
        return false;
    const int half = (t->texts.n + 1) / 2;
    struct texts first = t->texts;
    first.n = half;
    t->search = (struct layer_search){
        .layers = layers, .kept = xmalloc((size_t)layers * sizeof(bool)), .scores = scores, .self = t
    };
    t->best_kept = xcalloc((size_t)layers, sizeof(*t->best_kept));
    for (int i = 0; i < layers; i++)
        t->search.kept[i] = true;
    t->choosing = layer_scores_open(&t->target, &first, 0, (int)t->positions, err);
    t->held_out = t->choosing != NULL ? layer_scores_open(&t->target, &t->texts, half, (int)t->positions, err) : NULL;
    if (t->held_out == NULL)
        return false;
    print_head(t);
    const bool ok = remove_layers(t, err) && exchange_layers(t, err);
    if (t->best_speedup > 0) // of the rows so far, if it was interrupted
        print_best(t);
    return ok;
}

static void close_all(struct tune *t)
{
    layer_scores_close(t->choosing);
    layer_scores_close(t->held_out);
    texts_free(&t->texts);
    text_reader_close(&t->reader);
    target_close(&t->target);
    free(t->search.kept);
    free(t->best_kept);
}

static const char about[] =
    "Searches settings of drafters for a target on this machine. With --drafter: measures passes of the target, runs each drafter\n"
    "with its longest chain, a wide tree and best-first trees on some of the prompts, predicts all lengths, best-first sizes and the\n"
    "best fixed tree of each size (by dynamic programming over the acceptance by depth and rank), and confirms the best few by a\n"
    "paired run on other prompts.\n\n"
    "With DATA.jsonl: chooses the layers of the drafter layer_skip: removes layers of the model one at a time, each time the one\n"
    "without which the others predict the model's own next token best (sum min(p, q) at temperature 1), then exchanges kept and\n"
    "removed ones. Prints the acceptance of the first draft token on texts that it chose by and on others, the measured cost of a\n"
    "draft token, and the speedup predicted from both. DATA.jsonl: conversations with input_ids and loss_mask, as `speclab distill`\n"
    "writes them; the first half of up to 32 is chosen by, the others are held out.\n";

static const char examples[] =
    "  speclab tune smollm2-135m-instruct --drafter ngram --drafter suffix --prompts experiments/data/prompts.jsonl --out best.yaml\n"
    "  speclab distill smollm2-135m-instruct --invent 32 --out texts.jsonl\n"
    "  speclab tune smollm2-135m-instruct texts.jsonl\n";

int command_tune(int argc, char **argv)
{
    struct tune t = { .positions = 20, .exchanges = 1 };
    long long context = 0;
    struct setting_tune s = { .chat = "auto",
                              .rule = "rejection",
                              .sampling = "temperature=0",
                              .limit = 8,
                              .tokens = 64,
                              .batch = 1,
                              .longest = 8,
                              .confirm = 5 };
    const struct flag flags[] = {
        { "drafter", FLAG_TEXTS, &s.drafters, "KIND[:OPTIONS]",
          "a drafter whose settings are searched; can be given several times.\nIts `tokens` is the longest draft to try",
          0, 0 },
        { "prompts", FLAG_TEXT, &s.prompts, "FILE.jsonl", "with --drafter: prompts to probe and confirm with, in turn",
          0, 0 },
        { "limit", FLAG_INT, &s.limit, "N", "prompts of each at most; default: 8", 1, 100000 },
        { "tokens", FLAG_INT, &s.tokens, "N", "new tokens of a text; default: 64", 1, 1 << 24 },
        { "longest", FLAG_INT, &s.longest, "N", "longest draft of a drafter whose `tokens` is not given; default: 8", 1,
          64 },
        { "confirm", FLAG_INT, &s.confirm, "N", "settings to measure; default: 5; 0: none", 0, 64 },
        { "seconds", FLAG_INT, &s.seconds, "N", "confirm fewer settings if they would take longer in total", 1,
          1 << 24 },
        { "sampling", FLAG_TEXT, &s.sampling, "OPTIONS", "default: temperature=0", 0, 0 },
        { "rule", FLAG_TEXT, &s.rule, "RULE[:OPTIONS]", "default: rejection", 0, 0 },
        { "batch", FLAG_INT, &s.batch, "N", "texts at a time; default: 1", 1, MAX_SLOTS },
        { "chat", FLAG_TEXT, &s.chat, "NAME", "format of the prompts; default: auto", 0, 0 },
        { "db", FLAG_TEXT, &s.db, "FILE", "keep what was measured in this database", 0, 0 },
        { "out", FLAG_TEXT, &s.out, "FILE.yaml", "write an experiment with the best setting", 0, 0 },
        { "least", FLAG_INT, &t.least, "K", "layers to keep at least; default: half of them", 1, 10000 },
        { "positions", FLAG_INT, &t.positions, "N", "positions of each text; default: 20", 1, 10000 },
        { "exchanges", FLAG_INT, &t.exchanges, "N", "exchanges of layers of the best set, at most; default: 1", 0,
          1000 },
        { "context", FLAG_INT, &context, "N",
          "longer texts are cut at the end; default: 512.\nWith --drafter: tokens of prompt and text; default: 2048", 2,
          1 << 24 },
        { "threads", FLAG_INT, &t.threads, "N", "number of threads; default: one for each processor", 1, MAX_THREADS },
        PRECISION_FLAGS(t.precision),
        PACKED_FLAG(t.packed),
        { 0 },
    };
    const struct usage u = { "tune", "MODEL [DATA.jsonl]", about, flags, examples, 1, 2 };
    char **operand;
    int n;
    struct error err;
    const int status = usage_read(&u, argc, argv, &operand, &n);
    if (status != USAGE_OK)
        return status;
    if ((s.drafters.n > 0) == (n == 2))
        return usage_fail(&u, n == 2 ? "DATA.jsonl and --drafter exclude each other"
                                     : "missing argument: DATA.jsonl, or --drafter and --prompts");
    if ((n == 1) != (s.prompts != NULL))
        return usage_fail(&u, n == 1 ? "--drafter requires --prompts" : "DATA.jsonl and --prompts exclude each other");
    if (n == 1 && t.packed != PACKED_NO)
        return usage_fail(&u, "--packed and --drafter exclude each other");
    t.model = s.model = operand[0];
    bool ok;
    if (n == 1) {
        s.precision = t.precision;
        s.threads = t.threads;
        s.context = context > 0 ? context : 2048;
        ok = setting_tune(&s, &err);
    } else {
        t.context = context > 0 ? context : 512;
        t.stop = interrupt_catch();
        ok = tune(&t, operand, &err);
        close_all(&t);
    }
    return ok ? command_done(&u) : command_fail(&u, &err);
}
