// pretokenize_families.c - the pre-tokenizers that GGUF files name (tokenizer.ggml.pre), as lists of patterns.
//
// A family is what the tokenizer.json of its models says, stage by stage; where llama.cpp has a pattern for its own engine, the
// original one stands here. Each pattern splits the pieces of the one before it.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "tokenizers/pattern.h"
#include "tokenizers/pretokenize.h"

#define OTHERS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3_WITH(NUMBERS) \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBERS "|" OTHERS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 LLAMA3_WITH("\\p{N}{1,3}")
#define QWEN2 LLAMA3_WITH("\\p{N}")
#define QWEN35 \
    CONTRACTIONS \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BY_CASE(AFTER, NUMBERS) \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" AFTER "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" AFTER "|" NUMBERS \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O BY_CASE(CONTRACTIONS "?", "\\p{N}{1,3}")
#define CASED \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}" \
    "-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-" \
    "\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-" \
    "\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}" \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-" \
    "\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}" \
    "\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}" \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}" \
    "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-" \
    "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-" \
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK3 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define HAN_TO_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define DIGITS "digits"           // the pre-tokenizer Digits, one at a time
#define PUNCTUATION "punctuation" // the pre-tokenizer Punctuation, in runs
#define LETTERS "letters"         // the pre-tokenizer ByteLevel: what follows sees byte letters
#define NUMBERS "numbers"         // the pre-tokenizer Digits, runs of them

enum { MAX_PATTERNS = 6 };

static const struct family {
    const char *name;
    bool ignore_merges;
    const char *pattern[MAX_PATTERNS + 1];
} families[] = {
    { "gpt-2", false, { GPT2 } },
    { "gpt2", false, { GPT2 } },
    { "mpt", false, { GPT2 } },
    { "olmo", false, { GPT2 } },
    { "jais", false, { GPT2 } },
    { "phi-2", false, { GPT2 } },
    { "exaone4", false, { GPT2 } },
    { "gigachat", false, { GPT2 } },
    { "a.x-4.0", false, { GPT2 } },
    { "mellum", false, { GPT2 } },
    { "trillion", false, { GPT2 } },
    { "granite-docling", false, { GPT2 } },
    { "smollm", false, { DIGITS, GPT2 } },
    { "starcoder", false, { DIGITS, GPT2 } },
    { "refact", false, { DIGITS, GPT2 } },
    { "command-r", false, { DIGITS, GPT2 } },
    { "codeshell", false, { DIGITS, GPT2 } },
    { "exaone", false, { DIGITS, GPT2 } },
    { "minerva-7b", false, { DIGITS, GPT2 } },
    { "mellum2", false, { DIGITS, GPT2 } },
    { "llama-bpe", true, { LLAMA3 } },
    { "llama3", true, { LLAMA3 } },
    { "llama-v3", true, { LLAMA3 } },
    { "falcon3", true, { LLAMA3 } },
    { "falcon-h1", true, { LLAMA3 } },
    { "pixtral", true, { LLAMA3 } },
    { "midm-2.0", true, { LLAMA3 } },
    { "lfm2", true, { LLAMA3 } },
    { "dbrx", false, { LLAMA3 } },
    { "smaug-bpe", false, { LLAMA3 } },
    { "glm4", false, { LLAMA3 } },
    { "chatglm-bpe", false, { LLAMA3 } },
    { "qwen2", false, { QWEN2 } },
    { "stablelm2", false, { QWEN2 } },
    { "deepseek-r1-qwen", false, { QWEN2 } },
    { "kormo", false, { QWEN2 } },
    { "megrez", false, { QWEN2 } },
    { "hunyuan", false, { QWEN2 } },
    { "solar-open", false, { QWEN2 } },
    { "grok-2", false, { QWEN2 } },
    { "qwen35", false, { QWEN35 } },
    { "tekken", true, { BY_CASE("", "\\p{N}") } },
    { "gpt-4o", false, { GPT4O } },
    { "llama4", false, { GPT4O } },
    { "kanana2", false, { GPT4O } },
    { "minimax-m2", false, { GPT4O } },
    { "deepseek-llm",
      false,
      { "[\\r\\n]", "\\s?[" CASED "]+",
        "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
        HAN_TO_HANGUL, DIGITS } },
    { "deepseek-coder", false, { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_TO_HANGUL, DIGITS } },
    { "deepseek-v3", false, { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
    { "hunyuan-dense", false, { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
    { "joyai-llm", false, { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
    { "falcon", false, { PUNCTUATION, LETTERS, NUMBERS, "[0-9][0-9][0-9]" } },
    { "bloom", false, { BLOOM } },
    { "poro-chat", false, { BLOOM } },
    { "gpt3-finnish", false, { BLOOM } },
    { "viking", false, { BLOOM, "\\p{N}" } },
    { "seed-coder",
      false,
      { CONTRACTIONS
        "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
    { "superbpe", false, { "\\p{N}+", "(?=(\\d{3})+(?!\\d))" } },
};

static bool add_pattern(struct pretokenizer *p, const char *pattern, struct error *err)
{
    if (strcmp(pattern, DIGITS) == 0)
        return pretokenizer_digits(p, true, err);
    if (strcmp(pattern, NUMBERS) == 0)
        return pretokenizer_digits(p, false, err);
    if (strcmp(pattern, PUNCTUATION) == 0)
        return pretokenizer_punctuation(p, KEEP_RUNS, err);
    if (strcmp(pattern, LETTERS) == 0) {
        if (!pretokenizer_byte_level(p, false, true, err))
            return false;
        pretokenizer_letters(p);
        return true;
    }
    return pretokenizer_split(p, pattern, strlen(pattern), KEEP_ALL, err);
}

bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *ignore_merges, struct error *err)
{
    struct text known = { 0 };
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        const struct family *f = &families[i];
        if (strlen(f->name) == n && memcmp(f->name, name, n) == 0) {
            free(known.s);
            *ignore_merges = f->ignore_merges;
            for (int k = 0; f->pattern[k] != NULL; k++)
                if (!add_pattern(p, f->pattern[k], err))
                    return false;
            return true;
        }
        text_printf(&known, "%s%s", i > 0 ? ", " : "", f->name);
    }
    fail(err, "the pre-tokenizer \"%.*s\" is not known (%s)", n < 64 ? (int)n : 64, name, known.s);
    free(known.s);
    return false;
}

const char *pretokenizer_family_of(bool digits, const char *pattern, bool ignore_merges)
{
    const char *const wanted[] = { digits ? DIGITS : pattern != NULL ? pattern : GPT2, digits ? GPT2 : NULL };
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        const struct family *f = &families[i];
        const bool second =
            wanted[1] == NULL ? f->pattern[1] == NULL : f->pattern[1] != NULL && strcmp(f->pattern[1], wanted[1]) == 0;
        if (f->ignore_merges == ignore_merges && strcmp(f->pattern[0], wanted[0]) == 0 && second &&
            (f->pattern[1] == NULL || f->pattern[2] == NULL))
            return f->name;
    }
    return NULL;
}
