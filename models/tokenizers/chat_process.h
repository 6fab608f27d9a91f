// chat_process.h - a process that renders a model's own chat template: Jinja2 in Python's sandbox (chat_renderer.py),
// one for all conversations of a run, with a time limit for each.
#pragma once
#include <stdbool.h>

struct chat_process;
struct chat_request;
struct error;
struct json;
struct text;

enum { CHAT_SECONDS = 10 }; // time limit of a rendering, and of the start

// r: name: the template's, for messages; jinja: the template. Returns NULL and sets err on failure: no Python, no
// Jinja2, an error in the template with its line.
struct chat_process *chat_process_start(const struct chat_request *r, struct error *err);
void chat_process_end(struct chat_process *p); // NULL is allowed
// Appends a rendering. messages: a list of objects. Returns false and sets err on failure. After a time limit the
// process is gone, and every later call fails in the same words.
bool chat_process_render(struct chat_process *p, const struct json *messages, bool generation_prompt, struct text *to,
                         struct error *err);
