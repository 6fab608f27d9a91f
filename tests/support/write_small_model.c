// write_small_model.c - writes the small model of experiments/smoke.yaml, or one of other layers and context whose heads fill a block of 32:
// write_small_model FILE.gguf [LAYERS CONTEXT]
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/small_model.h"

int main(int argc, char **argv)
{
    struct small_model model = small_default;
    if (argc == 4) {
        model.layers = atoi(argv[2]);
        model.context = atoi(argv[3]);
        model.head_dim = 32;
    }
    if ((argc != 2 && argc != 4) || model.layers < 1 || model.context < 0) {
        fprintf(stderr, "usage: write_small_model FILE.gguf [LAYERS CONTEXT]\n");
        return 2;
    }
    small_write_gguf(argv[1], &model);
    return 0;
}
