// derived_model.h - GGUF files made of others, for tests of what runs them; `./run prune`, `quantize` and `inflate` make them for users.
#pragma once
#include "core/tensor.h"

struct derived {
    const int *keep; // (n) the layers that are kept; NULL: all
    int n;
    enum type type;       // of matrices whose rows fill its blocks; F32: as they are
    const char *inflated; // the model that the file says to be an inflated form of; NULL: it says nothing
};

// from: of matrices in F32 or BF16, if they are converted. A failure ends the program with a message.
void derived_write(const char *from, const char *to, const struct derived *how);
