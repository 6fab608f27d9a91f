// row_stages.h - what becomes of a row of logits before it is sampled from, as far as the row alone decides it: what a
// device can do without the text. In this order; sampling/stages.c says what each is.
#pragma once

struct row_stages {
    double
        inverse_temperature; // temperature: x := (x - largest) * heat; 1: nothing; 0: the first of the largest alone stays
    int top_k;               // 0: all
    double top_p;            // 1: all
    double below;            // min_p: what is less than the largest logit and this is ruled out; -INFINITY: nothing
};
