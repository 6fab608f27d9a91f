// test_config.c - configurations of checkpoints: which files and keys are read, and the RoPE frequencies that follow.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/paths.h"
#include "models/weights.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

// Hugging Face writes "model_max_length": 1000000000000000019884624838656 for tokenizers without a limit.
TEST(an_integer_out_of_range_is_read_as_a_real)
{
    static const char text[] = "{\"a\": 1000000000000000019884624838656, \"b\": -9223372036854775809, \"c\": "
                               "9223372036854775807, \"d\": \"99999999999999999999 \\\" 99999999999999999999\", "
                               "\"e\": [99999999999999999999,1], \"f\": 12345678901234567890123.5e-3}";
    struct json *j = json_parse(text, sizeof(text) - 1, "text", &err);
    assert_non_null(j);
    const struct json *a = json_get(j, "a"), *b = json_get(j, "b"), *e = json_get(j, "e");
    assert_true(!json_is_int(a) && json_is_number(a) && json_number(a) == 1e30);
    assert_true(!json_is_int(b) && json_is_number(b) && json_number(b) == -0x1p63);
    assert_true(json_is_int(json_get(j, "c")) && json_int(json_get(j, "c")) == INT64_MAX);
    assert_string_equal(json_text(json_get(j, "d")), "99999999999999999999 \" 99999999999999999999");
    assert_true(!json_is_int(json_at(e, 0)) && json_int(json_at(e, 1)) == 1);
    json_free(j);
    assert_null(json_parse("{\"a\": 99999999999999999999, x}", 30, "text", &err));
    assert_non_null(strstr(err.text, "text:1:"));
    assert_null(json_parse("1e999", 5, "text", &err));

    // A text that ends with such a number is not read beyond its end.
    enum { DIGITS = 20 };
    char *digits = xmalloc(DIGITS);
    memset(digits, '9', DIGITS);
    j = json_parse(digits, DIGITS, "text", &err);
    assert_true(json_is_number(j) && !json_is_int(j));
    json_free(j);
    free(digits);
}

// The formulas of the reference and the paper in double, without rounding to float at each step.
TEST(rope_follows_its_formulas)
{
    struct model_config c = {
        .head_dim = 64, .rope.theta = 500000, .rope.factor = 8, .rope.low = 1, .rope.high = 4, .rope.original = 8192
    };
    float f[32], divisors[32];
    double pi = acos(-1);
    for (int scaling = ROPE_PLAIN; scaling <= ROPE_TABLE; scaling++) {
        c.rope.scaling = (enum rope_scaling)scaling;
        for (int i = 0; i < 32; i++)
            divisors[i] = (float)(1 + i);
        config_rope(&c.rope, c.head_dim, divisors, f);
        for (int i = 0; i < 32; i++) {
            double plain = pow(c.rope.theta, -2.0 * i / 64), expected = plain;
            double wave = 2 * pi / plain, smooth = (8192 / wave - 1) / (4 - 1);
            if (scaling == ROPE_LINEAR || (scaling == ROPE_LLAMA3 && wave > 8192))
                expected = plain / 8;
            else if (scaling == ROPE_LLAMA3 && wave >= 8192 / 4)
                expected = (1 - smooth) * plain / 8 + smooth * plain;
            else if (scaling == ROPE_TABLE || scaling == ROPE_LONG)
                expected = plain / (1 + i);
            else if (scaling == ROPE_YARN) { // turns once (low) and four times (high) within 8,192 positions
                const double one = floor(32 * log(8192 / (4 * 2 * pi)) / log(5e5)),
                             all = ceil(32 * log(8192 / (1 * 2 * pi)) / log(5e5)),
                             ramp = fmin(fmax((i - one) / (all - one), 0), 1);
                expected = plain / 8 * ramp + plain * (1 - ramp);
            }
            assert_true(fabs(f[i] - expected) <= 1e-6 * expected);
        }
    }
}

// Goldens: tests/cases/make_rope.py. An error of one bit in a frequency is a thousand times larger in the angle at position 1,000.
TEST(rope_frequencies_equal_torchs_bit_by_bit)
{
    struct json *j = golden_json("rope.json");
    const struct json *cases = json_get(j, "cases");
    int rows = 0, wrong = 0;
    for (size_t k = 0; k < json_count(cases); k++) {
        const struct json *c = json_at(cases, k), *bits = json_get(c, "bits");
        const char *scaling = json_text(json_get(c, "scaling"));
        const bool llama3 = strcmp(scaling, "llama3") == 0, linear = strcmp(scaling, "linear") == 0;
        const struct model_config config = {
            .head_dim = (int)json_int(json_get(c, "dim")),
            .rope.theta = json_number(json_get(c, "base")),
            .rope.scaling = llama3   ? ROPE_LLAMA3
                            : linear ? ROPE_LINEAR
                                     : ROPE_PLAIN,
            .rope.factor = llama3 || linear ? json_number(json_get(c, "factor")) : 1,
            .rope.low = llama3 ? json_number(json_get(c, "low")) : 0,
            .rope.high = llama3 ? json_number(json_get(c, "high")) : 0,
            .rope.original = llama3 ? (int)json_int(json_get(c, "original")) : 0,
        };
        float f[128];
        assert_int_equal(json_count(bits), config.head_dim / 2);
        config_rope(&config.rope, config.head_dim, NULL, f);
        for (size_t i = 0; i < json_count(bits); i++, rows++) {
            uint32_t computed;
            memcpy(&computed, &f[i], sizeof(computed));
            if (computed == (uint32_t)json_int(json_at(bits, i)))
                continue;
            wrong++;
            print_message("%s, base %g, heads of %d, number %zu: %a computed, %d units off\n", scaling,
                          config.rope.theta, config.head_dim, i, (double)f[i],
                          (int)(computed - (uint32_t)json_int(json_at(bits, i))));
        }
    }
    assert_true(rows > 800);
    assert_int_equal(wrong, 0);
    json_free(j);
}

// Keys with the value that has no effect, and keys about other things than the model.
TEST(settings_without_an_effect_are_accepted)
{
    static const char *const settings[] = {
        "{'rope_scaling':{'rope_type':'linear','type':'linear','factor':2.0}}",
        "{'rope_scaling':{'rope_type':'linear','type':null,'factor':2.0}}",
        "{'auto_map':{'AutoTokenizer':['tokenization.T',null]},'sliding_window':null,'no_rope_layers':null}",
        "{'layer_types':['full_attention'],'embedding_multiplier':1.0,'logits_scaling':1,'mlp_bias':false}",
        "{'logit_scale':1.0,'use_parallel_residual':false,'alibi':false,'num_nextn_predict_layers':0}",
        "{'norm_type':'rms_norm','dim_model_base':null,'auto_map':{'AutoModelForCausalLM':null}}",
        "{'layer_types':null,'auto_map':{},'num_experts':0,'clip_qkv':null,'partial_rotary_factor':1.0}",
    };
    char *directory = test_path("inert"), *path = xformat("%s/config.json", directory);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        struct model_config c;
        small_write_hf(directory, &small_minimal);
        json_file_set(path, settings[i]);
        assert_ok(config_read(directory, &c, &err), err);
        assert_true((c.rope.scaling == ROPE_LINEAR) == (i < 2));
        config_free(&c);
    }
    free(directory);
    free(path);
}

// The model that ./run model fetches, if it is present, against values read with other programs.
TEST(the_demonstration_model_has_its_published_configuration)
{
    unsetenv("XDG_CACHE_HOME");
    char *path = model_path("smollm2-135m-instruct", NULL, &err);
    if (path == NULL) {
        print_message("%s\n", err.text);
        skip();
    }
    struct checkpoint o = checkpoint_open(path);
    const struct model_config *c = &o.config;
    assert_true(c->layers == 30 && c->width == 576 && c->hidden == 1536 && c->heads == 9 && c->kv_heads == 3 &&
                c->head_dim == 64);
    assert_true(c->vocab == 49152 && c->context == 8192 && c->tied && !c->attention_bias && c->rope.theta == 100000);
    assert_true(c->n_end == 2 && c->end[0] == 2 && c->end[1] == 0 && c->bos == 1 && !c->add_bos);
    assert_int_equal(o.weights->n, 272);
    for (const struct weight *w = o.weights->weight; w < o.weights->weight + o.weights->n; w++)
        checkpoint_tensor(&o, w->name, w->tensor.rows, w->tensor.width);
    assert_int_equal(checkpoint_tensor(&o, "model.embed_tokens.weight", 49152, 576).type, Q8_0);
    assert_int_equal(checkpoint_tensor(&o, "model.layers.29.mlp.gate_proj.weight", 1536, 576).type, Q4_1);
    checkpoint_close(&o);
    free(path);
}

RUN_TESTS(NULL, NULL)
