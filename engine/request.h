// request.h - what a sequence keeps of its request until it ends: its own copy of what ends the text, and a sampling of
// its own.
#pragma once
#include "engine/engine.h"

struct request_copy { // { 0 }: none; do not move while a sequence uses it
    struct stops stops;
    struct stop_strings strings;     // what stops.string looks for
    char **stop;                     // (strings.n) owned
    const struct sampling *sampling; // NULL: the verifier's
    struct sampling own;             // the sampling of the request; zero without one
};

// Whether a request is one that d can decode, but for its place among the other sequences.
bool request_check(const struct speclab_decoder *d, const struct speclab_request *r, struct error *err);
bool request_copy(struct request_copy *to, const struct speclab_decoder *d, const struct speclab_request *r,
                  struct error *err);
void request_free(struct request_copy *r);
// The text of the tokens of a sequence that has ended: NUL-terminated, free() it. NULL: there is no tokenizer.
char *request_text(const struct request_copy *r, const struct speclab_decoder *d, enum speclab_stop why,
                   const int32_t *token, int n, size_t *bytes);
