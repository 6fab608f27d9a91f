#include "tests/models/small_fp8.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/safetensors_write.h"
#include "models/formats/shards.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

#define OF_WEIGHTS \
    "\"dynamic\": false, \"num_bits\": 8, \"type\": \"float\", \"symmetric\": true, \"group_size\": null, " \
    "\"actorder\": null, \"observer\": \"minmax\", \"observer_kwargs\": {}"
#define COMPRESSED(weights) \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", \"kv_cache_scheme\": null, " \
    "\"quantization_status\": \"compressed\", \"ignore\": [\"lm_head\"], \"config_groups\": {\"group_0\": {\"targets\": " \
    "[\"Linear\"], \"output_activations\": null, \"input_activations\": {\"dynamic\": true, \"num_bits\": 8}, " \
    "\"weights\": {" OF_WEIGHTS ", " weights "}}}}"
#define FP8(more) "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"" more "}"

const struct small_model fp8_shape = { SMALL_SIZES(270, 256, 384, 3, 4, 1, 64), .bias = true, .tokenizer = true,
                                       .sharp = true, .seed = 3 };

const struct fp8_form fp8_forms[] = {
    { "qwen3", FP8(", \"weight_block_size\": [128, 128], \"modules_to_not_convert\": [\"lm_head\"]"), "_scale_inv", 128,
      128, true, false },
    { "deepseek", FP8(", \"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\""), "_scale_inv", 128, 128, false,
      false },
    // as transformers 5 writes it
    { "wide",
      FP8(", \"weight_block_size\": [48, 256], \"modules_to_not_convert\": null, \"modules_to_convert\": null, "
          "\"dequantize\": false, \"scale_fmt\": \"float\", \"expert_dtype\": \"fp8\""),
      "_scale_inv", 48, 256, false, false },
    { "vllm", FP8(", \"ignored_layers\": [\"lm_head\"]"), "_scale", 0, 0, false, true },
    { "tensor", COMPRESSED("\"strategy\": \"tensor\""), "_scale", 0, 0, true, true },
    { "channel", COMPRESSED("\"strategy\": \"channel\""), "_scale", 1, 0, true, false },
    { "rows", COMPRESSED("\"strategy\": \"channel\""), "_scale", 1, 0, false, true },
    { "block", COMPRESSED("\"strategy\": \"block\", \"block_structure\": [128, 128]"), "_scale", 128, 128, false,
      false },
    { 0 },
};

double fp8_number(int code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code < 128 ? size : -size;
}

// Codes below 128 are in the order of their numbers; of two that are as near, the even one, as torch rounds.
static uint8_t nearest(double x)
{
    static double number[127];
    for (int i = 126; number[1] == 0 && i > 0; i--)
        number[i] = fp8_number(i);
    int below = 0;
    for (int step = 64; step > 0; step /= 2)
        below += below + step < 127 && number[below + step] <= fabs(x) ? step : 0;
    const int above = below < 126 ? below + 1 : below;
    const double down = fabs(x) - number[below], up = number[above] - fabs(x);
    const int code = down < up || (down == up && below % 2 == 0) ? below : above;
    return (uint8_t)(x < 0 ? 128 + code : code);
}

// A matrix (rows, width) as FP8 with scales (down, across).
struct converted {
    int64_t rows, width, down, across;
    uint8_t *codes;
    float *scale, *plain;
};

static void convert_block(struct converted *c, const float *x, int64_t row, int64_t column, int64_t rows,
                          int64_t columns, bool short_scales)
{
    float max = 0;
    for (int64_t r = row; r < row + rows && r < c->rows; r++)
        for (int64_t k = column; k < column + columns && k < c->width; k++)
            max = fmaxf(max, fabsf(x[r * c->width + k]));
    float scale = max / 448;
    uint32_t bits;
    memcpy(&bits, &scale, sizeof(bits));
    bits &= short_scales ? 0xFFFF0000 : 0xFFFFFFFF;
    memcpy(&scale, &bits, sizeof(bits));
    c->scale[row / rows * c->across + column / columns] = scale;
    for (int64_t r = row; r < row + rows && r < c->rows; r++)
        for (int64_t k = column; k < column + columns && k < c->width; k++) {
            c->codes[r * c->width + k] = nearest((double)(float)((double)x[r * c->width + k] / (double)scale));
            c->plain[r * c->width + k] = (float)(fp8_number(c->codes[r * c->width + k]) * (double)scale);
        }
}

static struct converted convert(const struct safetensor *t, const struct fp8_form *form)
{
    struct converted c = { .rows = t->dim[0], .width = t->dim[1] };
    const int64_t rows = form->rows == 0 ? c.rows : form->rows, columns = form->columns == 0 ? c.width : form->columns;
    c.down = (c.rows + rows - 1) / rows;
    c.across = (c.width + columns - 1) / columns;
    c.codes = xmalloc((size_t)(c.rows * c.width));
    c.plain = xmalloc((size_t)(c.rows * c.width) * sizeof(float));
    c.scale = xmalloc((size_t)(c.down * c.across) * sizeof(float));
    float *x = xmalloc(t->bytes);
    memcpy(x, t->data, t->bytes);
    for (int64_t r = 0; r < c.rows; r += rows)
        for (int64_t k = 0; k < c.width; k += columns)
            convert_block(&c, x, r, k, rows, columns, form->short_scales);
    free(x);
    return c;
}

static struct safetensor scales_of(const struct converted *c, const char *name, const struct fp8_form *form)
{
    const int64_t n = c->down * c->across;
    struct safetensor s = { .name = xformat("%s%s", name, form->suffix),
                            .dtype = form->short_scales ? "BF16" : "F32",
                            .dims = form->flat ? 1 : 2,
                            .dim = { form->flat ? n : c->down, c->across },
                            .bytes = (size_t)n * (form->short_scales ? 2 : 4) };
    if (form->short_scales)
        for (int64_t i = 0; i < n; i++)
            memmove((uint8_t *)c->scale + 2 * i, (uint8_t *)c->scale + 4 * i + 2, 2);
    s.data = (void *)c->scale;
    return s;
}

static void write_directory(const char *from, const char *to, const struct safetensor *t, size_t n, const char *config)
{
    struct error err;
    char *command = xformat("cp -r %s %s", from, to), *path = xformat("%s/config.json", to);
    assert_int_equal(system(command), 0);
    if (config != NULL) {
        struct json *j = json_read(path, &err);
        json_set(j, "quantization_config", json_parse(config, strlen(config), "quantization_config", &err));
        char *text = json_write(j);
        file_write_bytes(path, text, strlen(text));
        free(text);
        json_free(j);
    }
    free(path);
    path = xformat("%s/model.safetensors", to);
    assert_ok(safetensors_write(path, t, n, NULL, &err), err);
    free(path);
    free(command);
}

void small_write_fp8(const char *from, const char *to, const char *plain, const struct fp8_form *form)
{
    struct error err;
    struct shards *s = shards_open(from, &err);
    assert_ok(s != NULL, err);
    const size_t n = shards_count(s);
    size_t converted = 0, written = 0;
    struct converted *c = xcalloc(n, sizeof(*c));
    struct safetensor *small = xcalloc(2 * n, sizeof(*small)), *large = xcalloc(n, sizeof(*large));
    for (size_t i = 0; i < n; i++) {
        const struct safetensor *t = shards_at(s, i);
        small[written++] = large[i] = *t;
        if (strncmp(t->name, "model.layers.", 13) != 0 || t->dims != 2 || t->dim[1] % 128 != 0)
            continue;
        struct converted *m = &c[converted++];
        *m = convert(t, form);
        large[i].data = (void *)m->plain;
        small[written - 1].dtype = "F8_E4M3";
        small[written - 1].data = m->codes;
        small[written - 1].bytes = t->bytes / 4;
        small[written++] = scales_of(m, t->name, form);
    }
    write_directory(from, to, small, written, form->config);
    if (plain != NULL)
        write_directory(from, plain, large, n, NULL);
    for (size_t i = 0; i < written; i++)
        if (i > 0 && strcmp(small[i - 1].dtype, "F8_E4M3") == 0)
            free((void *)(uintptr_t)small[i].name);
    for (size_t i = 0; i < converted; i++)
        free(c[i].codes), free(c[i].scale), free(c[i].plain);
    free(c), free(small), free(large);
    shards_close(s);
}
