// row_stages.h - the sampling stages that depend on a single row of logits alone, which a device can apply without the
// text. They are applied in this order; sampling/stages.c specifies each.
#pragma once

struct row_stages {
    double inverse_temperature; // temperature: x := (x - largest) * inverse_temperature; 1: none;
                                // 0: only the argmax remains
    int top_k;                  // 0: all tokens
    double top_p;               // 1: all tokens
    double below;               // min_p: logits less than the largest plus this become -inf; -INFINITY: none
};
