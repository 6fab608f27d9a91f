// row_stages.h - the sampling stages that depend on a single row of logits alone: what a device can apply without the text. In this
// order; sampling/stages.c specifies each.
#pragma once

struct row_stages {
    double
        inverse_temperature; // temperature: x := (x - largest) * inverse_temperature; 1: none; 0: only the argmax stays
    int top_k;               // 0: all
    double top_p;            // 1: all
    double below;            // min_p: logits less than the largest plus this become -inf; -INFINITY: none
};
