// write_small_model.c - writes the small model of experiments/smoke.yaml: write_small_model FILE.gguf
#include <stdio.h>

#include "tests/support/small_model.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: write_small_model FILE.gguf\n");
        return 2;
    }
    small_write_gguf(argv[1], &small_default);
    return 0;
}
