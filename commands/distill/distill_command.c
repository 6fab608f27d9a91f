// distill_command.c - `speclab distill`: options, what they open, and the summary.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/command_line.h"
#include "commands/commands.h"
#include "commands/distill/distill.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/settings.h"
#include "models/model.h"

enum { DEFAULT_CONTEXT = 2048 };

static const char about[] =
    "The target writes training text for its own drafters: answers to the prompts of --prompts files (question, turns,\n"
    "prompt or messages, as in experiments), and with --invent N conversations whose user's turn it writes itself, at\n"
    "temperature 1, from the chat template's beginning. Each conversation is a line of FILE: id, conversations, input_ids\n"
    "(what the model saw and wrote), loss_mask (1: written as an answer), temperature, seed. FILE.dropped says which\n"
    "conversations were not written, and why. The same command continues what was interrupted.\n";

static const char examples[] =
    "  speclab distill smollm2-135m-instruct --invent 1000 --out data.jsonl\n"
    "  speclab distill smollm2-135m-instruct --prompts questions.jsonl --invent 8000 --tokens 3000000 \\\n"
    "      --exclude experiments/data/prompts.jsonl --out data.jsonl\n";

// ---- options

static bool read_temperatures(struct distill *d, struct error *err)
{
    int *n = &d->plan.temperatures;
    for (const char *at = d->temperatures, *end; at != NULL; at = *end == ',' ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if (*n == MAX_TEMPERATURES)
            return fail(err, "--temperatures: expected at most %d", MAX_TEMPERATURES);
        char *pair = xformat("temperature=%.*s", (int)(end - at), at);
        struct error why;
        struct settings *s = settings_pairs(pair, "--temperatures", &why);
        const bool ok = s != NULL && sampling_read(s, &d->sampling[*n], &why);
        settings_free(s);
        free(pair);
        if (!ok)
            return fail(err, "--temperatures %s: expected numbers such as 0,0.7,1: %s", d->temperatures, why.text);
        d->temperature[(*n)++] = strtod(at, NULL);
    }
    return true;
}

static bool is_conversation(const struct prompt *p, struct error *err)
{
    if (p->ids == NULL && !p->raw)
        return true;
    return fail(err, "%s:%d: prompt %s is %s: expected a conversation (question, turns, prompt or messages)", p->path,
                p->line, p->id,
                p->raw ? "a completion (task_id and entry_point), which no chat template renders" : "token ids");
}

static bool read_prompts(struct distill *d, struct error *err)
{
    for (int f = 0; f < d->prompts.n; f++) {
        struct prompts *to = &d->plan.file[d->plan.files];
        if (!prompts_read(d->prompts.text[f], 0, 0, to, err))
            return false;
        d->plan.files++;
        for (int i = 0; i < to->n; i++)
            if (!is_conversation(&to->prompt[i], err))
                return false;
        for (int g = 0; g < f; g++)
            if (hash_equal(d->plan.file[g].hash, to->hash))
                return fail(err, "--prompts %s: has the content of %s", to->path, d->plan.file[g].path);
    }
    const int64_t given = plan_given(&d->plan), most = PLAN_NUMBERS / 2;
    return (given < most && d->invent < most) ||
           fail(err,
                "expected at most %lld answers to prompts, and as many invented conversations; found %lld and %lld",
                (long long)most, (long long)given, d->invent);
}

static bool read_exclusions(struct distill *d, struct error *err)
{
    for (int f = 0; f < d->exclude.n; f++) {
        int without = 0;
        if (!exclusions_read(&d->exclusions, d->exclude.text[f], &without, err))
            return false;
        if (without > 0)
            fprintf(stderr, "%s: %d line%s without text exclude%s nothing\n", d->exclude.text[f], without,
                    without > 1 ? "s" : "", without > 1 ? "" : "s");
    }
    return true;
}

// ---- opening

static bool open_target(struct distill *d, struct error *err)
{
    const struct target_options options = {
        .precision = d->precision, .threads = (int)d->threads, .packed = d->packed, .log = command_log
    };
    if (!target_open(&d->target, d->model, &options, err) || !target_needs_text(&d->target, err) ||
        !target_chat(&d->target, (struct chat_request){ .name = d->chat_name, .variables = d->chat_variables },
                     &d->chat, err))
        return false;
    struct text text = { 0 };
    struct error why;
    const bool opens = chat_render_user(&d->chat, &text, &why);
    free(text.s);
    if (d->invent > 0 && !opens)
        return fail(err,
                    "--invent needs a chat template with a user's turn that a model can write, found --chat %s: %s",
                    d->chat_name, why.text);
    const int context = model_shape(d->target.model)->context;
    if (d->context > context)
        return fail(err, "--context: expected at most %d, the model's context, found %lld", context, d->context);
    if (d->context == 0)
        d->context = context < DEFAULT_CONTEXT ? context : DEFAULT_CONTEXT;
    return true;
}

static bool open_pairing(struct distill *d, struct error *err)
{
    if (!pairing_read(&d->pairing, NULL, NULL, NULL, err) ||
        !pairing_open(&d->pairing, &d->target, NULL, (int)d->slots, (int)d->context, err))
        return false;
    for (int i = 0; i < d->plan.temperatures; i++)
        d->sampling[i].workers = d->pairing.sampling.workers;
    d->invention.workers = d->pairing.sampling.workers;
    return true;
}

static struct json *hash_json(struct hash h)
{
    char text[HASH_TEXT];
    hash_write(h, text);
    return json_new_text(text);
}

// What decides the text of a conversation with a given id, and which ids there are; limits can be raised later.
static struct json *settings_of(const struct distill *d, struct error *err)
{
    struct json *s = json_new_object(), *prompts = json_new_array(), *exclude = json_new_array();
    struct json *temperatures = json_new_array();
    bool ok = true;
    for (int f = 0; f < d->plan.files; f++)
        json_push(prompts, hash_json(d->plan.file[f].hash));
    for (int f = 0; f < d->exclude.n; f++) {
        struct text text = { 0 };
        ok = ok && read_all(d->exclude.text[f], &text, err);
        json_push(exclude, hash_json(hash_of(text.s, text.n)));
        free(text.s);
    }
    for (int i = 0; i < d->plan.temperatures; i++)
        json_push(temperatures, json_new_number(d->temperature[i]));
    json_set(s, "format", json_new_text("speclab-distill-1"));
    json_set(s, "model", hash_json(model_config(d->target.model)->hash));
    json_set(s, "activations", json_new_text(activations_names[model_activations(d->target.model)]));
    json_set(s, "cache", json_new_text(type_facts[d->target.cache].name));
    json_set(s, "chat", json_new_text(d->chat.kind == CHAT_JINJA ? d->chat.label : d->chat_name));
    json_set(s, "prompts", prompts);
    json_set(s, "samples", json_new_int(d->plan.samples));
    json_set(s, "exclude", exclude);
    json_set(s, "temperatures", temperatures);
    json_set(s, "new_tokens", json_new_int(d->new_tokens));
    json_set(s, "context", json_new_int(d->context));
    json_set(s, "seed", json_new_int(d->seed));
    if (ok)
        return s;
    json_free(s);
    return NULL;
}

static bool open_output(struct distill *d, struct error *err)
{
    struct json *settings = settings_of(d, err);
    distill_note_prompts(d);
    const bool ok = settings != NULL && output_open(&d->output, d->out, settings, distill_note, d, err);
    json_free(settings);
    return ok;
}

static void close_all(struct distill *d)
{
    output_close(&d->output);
    pairing_close(&d->pairing);
    chat_close(&d->chat);
    json_free(d->chat_variables);
    target_close(&d->target);
    exclusions_free(&d->exclusions);
    for (int i = 0; i < MAX_TEMPERATURES; i++)
        sampling_free(&d->sampling[i]);
    plan_free(&d->plan);
    hash_map_free(&d->invented);
    hash_map_free(&d->greedy);
}

// ---- the command

static void summarize(const struct distill *d)
{
    const struct output *o = &d->output;
    printf("%s: %lld conversations, %lld answer tokens\n", d->out, (long long)o->conversations,
           (long long)o->answer_tokens);
    for (int i = 1; i < DROPS; i++)
        if (o->dropped[i] > 0)
            printf("%lld dropped: %s\n", (long long)o->dropped[i], drop_means[i]);
    printf(
        "this run: %lld conversations, %lld cut at the limit; %lld answer tokens in %.1f s, %.1f tokens/s (%.1f with invented "
        "turns) in %lld slots, activations %s, cache %s\n",
        (long long)d->written, (long long)d->cut, (long long)d->answer_tokens, d->seconds,
        d->seconds > 0 ? (double)d->answer_tokens / d->seconds : 0,
        d->seconds > 0 ? (double)d->decoded / d->seconds : 0, d->slots,
        activations_names[model_activations(d->target.model)], type_facts[d->target.cache].name);
    if (d->shortened > 0)
        printf(
            "%lld of them without all turns of their prompts: an answer was cut, or the chat template writes it otherwise once a turn "
            "follows\n",
            (long long)d->shortened);
}

static int run(struct distill *d, const struct usage *u)
{
    struct error err;
    const volatile int *stop = interrupt_catch();
    if (!open_target(d, &err) || !open_output(d, &err) || !open_pairing(d, &err))
        return command_fail(u, &err);
    const bool ok = distill_run(d, stop, &err);
    summarize(d);
    return ok ? command_done(u) : command_fail(u, &err);
}

int command_distill(int argc, char **argv)
{
    const char *chat_variables = NULL;
    struct distill d = { .chat_name = "auto", .temperatures = "0,0.7,1", .new_tokens = 512, .slots = 64 };
    long long samples = 1;
    const struct flag flags[] = {
        { "out", FLAG_TEXT, &d.out, "FILE", "the lines are appended to this file; needed", 0, 0 },
        { "prompts", FLAG_TEXTS, &d.prompts, "FILE", "prompts to answer, JSON lines; can be given several times", 0,
          0 },
        { "invent", FLAG_INT, &d.invent, "N", "conversations to invent; default: 0", 0, INT_MAX },
        { "samples", FLAG_INT, &samples, "N", "answers to each prompt; default: 1", 1, 1 << 20 },
        { "temperatures", FLAG_TEXT, &d.temperatures, "LIST", "of the answers, in rotation; default: 0,0.7,1", 0, 0 },
        { "exclude", FLAG_TEXTS, &d.exclude, "FILE",
          "JSON lines: prompts that share 13 words in a row with one of its\ntexts are dropped; can be given several times",
          0, 0 },
        { "tokens", FLAG_INT, &d.tokens, "N", "start no conversation once FILE has N answer tokens; default: no limit",
          1, LLONG_MAX },
        { "new-tokens", FLAG_INT, &d.new_tokens, "N", "maximum number of tokens of a text; default: 512", 1, 1 << 24 },
        { "context", FLAG_INT, &d.context, "N",
          "maximum length of a conversation; default: the model's context,\nat most 2048", 2, 1 << 24 },
        { "slots", FLAG_INT, &d.slots, "N", "texts decoded at a time; default: 64", 1, MAX_SLOTS },
        { "seed", FLAG_INT, &d.seed, "N", "seed of all random numbers; default: 0", 0, LLONG_MAX },
        { "threads", FLAG_INT, &d.threads, "N", "number of threads; default: one for each processor", 1, MAX_THREADS },
        PRECISION_FLAGS(d.precision),
        PACKED_FLAG(d.packed),
        { "chat", FLAG_TEXT, &d.chat_name, CHAT_CHOICES, "chat format of the conversations; default: auto", 0, 0 },
        CHAT_VARIABLES_FLAG(chat_variables),
        { 0 },
    };
    const struct usage u = { "distill", "MODEL", about, flags, examples, 1, 1 };
    struct error err;
    char **operand;
    int status = usage_read(&u, argc, argv, &operand, NULL);
    if (status != USAGE_OK)
        return status;
    d.model = operand[0];
    d.plan.samples = (int)samples;
    d.plan.invented = d.invent;
    if (d.out == NULL || *d.out == '\0')
        status = usage_fail(&u, "missing --out: expected the file that the conversations are written to");
    else if (d.prompts.n == 0 && d.invent == 0)
        status = usage_fail(&u, "nothing to write: expected --prompts FILE, --invent N, or both");
    else if (!chat_name_known(d.chat_name, &err) || !chat_variables_read(chat_variables, &d.chat_variables, &err))
        status = usage_fail(&u, "--chat: %s", err.text);
    else if (!read_temperatures(&d, &err) || !read_prompts(&d, &err) || !read_exclusions(&d, &err))
        status = usage_fail(&u, "%s", err.text);
    else
        status = run(&d, &u);
    close_all(&d);
    return status;
}
