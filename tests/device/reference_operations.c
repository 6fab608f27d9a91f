#include "tests/device/reference_operations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

void reference_matmul(double *out, const float *x, const float *w, int n, int m, int k)
{
    enum { TOGETHER = 8 }; // sums, which do not wait for each other
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j += TOGETHER) {
            const int sums = m - j < TOGETHER ? m - j : TOGETHER;
            double sum[TOGETHER] = { 0 };
            for (int l = 0; l < k; l++)
                for (int s = 0; s < TOGETHER; s++)
                    sum[s] += (double)x[i * k + l] * (double)w[(s < sums ? j + s : j) * k + l];
            memcpy(out + i * m + j, sum, (size_t)sums * sizeof(*sum));
        }
}

void reference_rmsnorm(double *out, const float *x, const float *w, int n, int width, double eps)
{
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < width; j++)
            sum += (double)x[i * width + j] * (double)x[i * width + j];
        for (int j = 0; j < width; j++)
            out[i * width + j] = (double)x[i * width + j] / sqrt(sum / width + eps) * (double)w[j];
    }
}

void reference_glu(double *out, const float *gate, const float *up, int n, enum gate_function f)
{
    for (int i = 0; i < n; i++) {
        const double x = (double)gate[i], cubic = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        out[i] = (f == GATE_GELU ? x / 2 * (1 + tanh(cubic)) : x / (1 + exp(-x))) * (up != NULL ? (double)up[i] : 1);
    }
}

void reference_rope(double *x, const float *inverse_frequency, int position, int heads, int head_dim, int rotated)
{
    for (int h = 0; h < heads; h++)
        for (int d = 0; d < rotated / 2; d++) {
            double angle = (double)((float)position * inverse_frequency[d]), *a = x + h * head_dim + d,
                   *b = a + rotated / 2;
            double turned = *a * cos(angle) - *b * sin(angle);
            *b = *b * cos(angle) + *a * sin(angle);
            *a = turned;
        }
}

static int sees(const struct layout *s, int i, int pending)
{
    return (int)(s->ancestors[i * s->words + pending / 64] >> pending % 64 & 1);
}

void reference_attend(double *out, const float *q, const float *keys, const float *values, const struct layout *s,
                      int heads, int kv_heads, struct attention a)
{
    const int head_dim = a.head_dim, width = kv_heads * head_dim;
    const double scale = a.scale != 0 ? (double)a.scale : 1 / sqrt(head_dim), cap = (double)a.cap;
    double *weight = calloc((size_t)s->length, sizeof(*weight));
    for (int i = 0; i < s->n; i++)
        for (int h = 0; h < heads; h++) {
            int kv = h / (heads / kv_heads);
            double max = -HUGE_VAL, total = 0;
            int seen = 0; // from the last one back
            for (int j = s->length - 1; j >= 0; j--) {
                weight[j] = -HUGE_VAL;
                if (!(j < s->prefix[i] || (j - s->prefix[i] < 64 * s->words && sees(s, i, j - s->prefix[i]))) ||
                    (a.window > 0 && seen++ >= a.window))
                    continue;
                const float *key = keys + (int64_t)(s->slot[i] * s->length + j) * width + kv * head_dim;
                double dot = 0;
                for (int d = 0; d < head_dim; d++)
                    dot += (double)q[(i * heads + h) * head_dim + d] * (double)key[d];
                weight[j] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
                max = weight[j] > max ? weight[j] : max;
            }
            for (int j = 0; j < s->length; j++) {
                weight[j] = exp(weight[j] - max);
                total += weight[j];
            }
            double *sum = memset(out + (i * heads + h) * head_dim, 0, (size_t)head_dim * sizeof(*sum));
            for (int j = 0; j < s->length; j++) {
                const float *value = values + (int64_t)(s->slot[i] * s->length + j) * width + kv * head_dim;
                for (int d = 0; d < head_dim && weight[j] > 0; d++)
                    sum[d] += weight[j] / total * (double)value[d];
            }
        }
    free(weight);
}

double reference_distance(const float *a, const double *b, int64_t n)
{
    double max_difference = 0, max_value = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= max_difference))
            max_difference = d;
        max_value = fabs(b[i]) > max_value ? fabs(b[i]) : max_value;
    }
    return max_difference / (max_value > 0 ? max_value : 1);
}
