// write_small_heads.c - writes heads with random weights for a small model into folders: write_small_heads TARGET MEDUSA EAGLE EAGLE3
#include <stdio.h>

#include "tests/support/small_heads.h"

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: write_small_heads TARGET MEDUSA EAGLE EAGLE3\n");
        return 2;
    }
    const struct head_shape shape = head_shape_of(argv[1]);
    heads_write_medusa(argv[2], &shape);
    heads_write_eagle(argv[3], &shape);
    heads_write_eagle3(argv[4], &shape);
    return 0;
}
