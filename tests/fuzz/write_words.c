// write_words.c - seeds of the targets that read words: experiments, prompts, chat templates, changes of a database.
#include "tests/fuzz/write_seeds.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

void write_words(void)
{
    static const struct {
        const char *target, *name, *text;
    } all[] = {
        { "prompts", "shapes",
          "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"one\", \"two\"], \"reference\": [\"a\", \"b\"]}\n"
          "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\", \"entry_point\": \"f\", \"answer\": \"x\"}\n"
          "{\"question\": \"2 + 2?\", \"answer\": \"4\"}\n\n"
          "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}, "
          "{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"v\"}], \"answer\": \"\"}\n"
          "{\"id\": \"i\", \"input_ids\": [1, 2, 3], \"answer\": [\"y\"]}\n" },
        { "prompts", "training",
          "{\"input_ids\": [1, 2, 3, 4, 5, 6], \"loss_mask\": [0, 0, 1, 1, 1, 1]}\n\n{\"input_ids\": [7], \"loss_mask\": [1]}\n" },
        { "prompts", "one", "{\"prompt\": \"abc\"}\n" },
        { "prompts", "mark", "\xEF\xBB\xBF{\"prompt\": \"abc\", \"id\": 18446744073709551616}\n{\"prompt\": 1.5e3}\n" },
        { "prompts", "list", "[{\"prompt\": \"abc\"}]\n" },
        { "prompts", "gzip", "\x1F\x8B\x08" },
        { "experiment", "all",
          "name: all\ntarget: {model: target.gguf, device: cpu, activations: f32, cache: bf16}\nthreads: 1\n"
          "prompts: {file: prompts.jsonl, limit: 2, per_category: 1, chat: chatml}\n"
          "limits: {new_tokens: 24, context: 448, ignore_end: true, stop: [a, \"b\\n\"]}\nseed: 7\nrepeat: 2\n"
          "record: {trials: true, expected: true}\ncells:\n"
          "  sampling: [{temperature: 0}, {temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.05}]\n  batch: [1, 3]\n"
          "  rule: [rejection]\n  drafter:\n    - none\n    - {kind: ngram, longest: 2, tokens: 6}\n"
          "    - {kind: small, model: target.gguf, tokens: 3, pick: greedy}\n" },
        { "experiment", "trees",
          "name: trees\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\ncells:\n  rule: [traversal, spectr]\n"
          "  drafter: [{kind: small, model: target.gguf, widths: [3, 2, 1], pick: sampled, distinct: true}]\n" },
        { "experiment", "file",
          "name: file\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\ncells:\n  rule: rejection\n"
          "  sampling: {temperature: 1, logit_bias: {11: -2.5, 198: 1}}\n"
          "  drafter:\n  - {kind: medusa, weights: target.gguf, tree: tree.json}\n  - {kind: small, model: target.gguf, tokens: 2, "
          "nodes: 8}\n" },
        { "experiment", "sweep",
          "name: x\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\nx-a: &a {kind: small, model: target.gguf}\ncells:\n"
          "  sampling: {temperature: {from: 0, to: 1, step: 0.5}}\n  zip:\n    batch: {from: 1, to: 4, factor: 2}\n"
          "    rule: [rejection, match, typical]\n  drafter:\n    - {<<: *a, tokens: {any: [1, 2]}}\n"
          "    - {<<: [*a], zip: {pick: [sampled, greedy], tokens: [3, 4]}}\n  exclude:\n"
          "    - {batch: [1, 2], drafter: {tokens: 2}}\n    - {rule: typical}\n" },
        { "experiment", "inline", "small:model=target.gguf,widths=[4,2],pick=sampled\n" },
        { "experiment", "published", "mc_sim_7b_63\n" },
        { "experiment", "paths", "[[0], [0, 0], [1]]\n" },
        { "experiment", "listed",
          "name: listed\ntarget: {model: target.gguf}\nprompts: {file: prompts.jsonl}\nlimits: {stop: \"\\x7F\\x85\\u2028\"}\ncells:\n"
          "  rule: {kind: lenient, lenience: 1.5}\n  drafter: {kind: eagle3, weights: target.gguf, tree: [[0], [0, 0], [1]], "
          "pick: greedy}\n" },
        { "experiment", "quoted", "ngram:longest=\"3\",tokens=8\n" },
        { "experiment", "typical",
          "name: 'typical'\ntarget:\n  model: \"target.gguf\"\nprompts:\n  file: prompts.jsonl\ncells:\n  rule:\n  - {kind: typical}\n"
          "  - {kind: lenient}\n  - {kind: synthetic, rate: 0.5}\n  drafter: [ngram]\n" },
        { "chat", "smollm", "auto" },
        { "chat", "none", "none" },
        { "chat", "unknown", "word" },
        { "database", "nothing", "SELECT 1" },
        { "database", "values", "UPDATE run SET batch = 2 WHERE id % 2 = 0\nDELETE FROM step WHERE step = 1\n" },
        { "database", "schema", "ALTER TABLE step RENAME COLUMN tokens TO x\nPRAGMA user_version = 4\n" },
        { "database", "newer", "PRAGMA user_version = 99" },
        { "database", "others", "PRAGMA application_id = 3" },
        { "database", "views", "DROP VIEW run_summary\n" },
        { "database", "bytes", "!20 1\n!4100 255\n" },
        { "database", "magic", "!0 1\n" },
        { "database", "nulls", "UPDATE sequence SET text = NULL, category = NULL\nUPDATE step SET expected = NULL\n" },
        // fuzz_database allocates a table of this length.
        { "database", "depth", "UPDATE step SET depth = 9223372036854775807\n" },
        { "database", "names", "UPDATE run SET peers = peers || char(0) || 'x' \n" },
        { "database", "differ", "UPDATE sequence SET text = 'x', tokens = '[1]' WHERE id % 3 = 0\n" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct text t = { 0 };
        text_puts(&t, all[i].text);
        if (strcmp(all[i].target, "experiment") == 0) {
            add_nul(&t);
            text_puts(&t, i % 2 ? "[[0], [0, 0], [1], [0, 0, 0]]" : "{\"tree\": [[0], [1], [2], [0, 1]]}");
        }
        if (strcmp(all[i].target, "chat") == 0) {
            add_nul(&t);
            text_puts(&t, "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
                          "Face<|im_end|>\n' }}");
            add_nul(&t);
            text_puts(&t, "hello");
            add_nul(&t);
            text_puts(&t, "more");
        }
        put_text(all[i].target, all[i].name, &t);
        free(t.s);
    }
    PUT("chat", "template", "auto\0{{ messages }} a template that is not supported \xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4");
    PUT("chat", "nothing", "auto\0\0a\0b");
    PUT("chat", "chatml", "chatml\0'You are a helpful assistant.'\0a\0b");
}
