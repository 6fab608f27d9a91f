// pretokenize_families.c - the pre-tokenizers that GGUF files name (tokenizer.ggml.pre), as lists of patterns.
//
// A family follows the tokenizer.json of its models, stage by stage. Where llama.cpp has rewritten a pattern for its
// engine, the list has the original. Each pattern splits the pieces of the one before it.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/tokenizers/pretokenize.h"

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
#define LETTERS "" // the next stages see byte letters, as after the pre-tokenizer ByteLevel

enum { MAX_NAMES = 12, MAX_PATTERNS = 6 };

static const struct family {
    const char *name[MAX_NAMES + 1];
    bool ignore_merges;
    const char *pattern[MAX_PATTERNS + 1];
} families[] = {
    { { "gpt-2", "gpt2", "mpt", "olmo", "jais", "phi-2", "exaone4", "gigachat", "a.x-4.0", "mellum", "trillion",
        "granite-docling" },
      false,
      { GPT2 } },
    { { "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2" },
      false,
      { DIGIT, GPT2 } },
    { { "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2" }, true, { LLAMA3 } },
    { { "dbrx", "smaug-bpe", "glm4", "chatglm-bpe" }, false, { LLAMA3 } },
    { { "qwen2", "stablelm2", "deepseek-r1-qwen", "kormo", "megrez", "hunyuan", "solar-open", "grok-2" },
      false,
      { QWEN2 } },
    { { "qwen35" }, false, { QWEN35 } },
    { { "tekken" }, true, { BY_CASE("", "\\p{N}") } },
    { { "gpt-4o", "llama4", "kanana2", "minimax-m2" }, false, { GPT4O } },
    { { "deepseek-llm" },
      false,
      { "[\\r\\n]", "\\s?[" CASED "]+",
        "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
        HAN_TO_HANGUL, DIGIT } },
    { { "deepseek-coder" }, false, { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_TO_HANGUL, DIGIT } },
    { { "deepseek-v3", "hunyuan-dense", "joyai-llm" }, false, { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
    { { "falcon" }, false, { PUNCTUATION, GPT2, LETTERS, DIGITS, "[0-9][0-9][0-9]" } },
    { { "bloom", "poro-chat", "gpt3-finnish" }, false, { BLOOM } },
    { { "viking" }, false, { BLOOM, "\\p{N}" } },
    { { "seed-coder" },
      false,
      { CONTRACTIONS
        "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" } },
    { { "superbpe" }, false, { "\\p{N}+", "(?=(\\d{3})+(?!\\d))" } },
};
enum { FAMILIES = sizeof(families) / sizeof(*families) };

static bool add_pattern(struct pretokenizer *p, const char *pattern, struct error *err)
{
    if (*pattern != '\0') // Falcon's tokenizer.json has runs of punctuation
        return pretokenizer_split(p, pattern, strlen(pattern), strcmp(pattern, PUNCTUATION) == 0 ? KEEP_RUNS : KEEP_ALL,
                                  err);
    pretokenizer_letters(p);
    return true;
}

bool pretokenizer_family(struct pretokenizer *p, const char *name, size_t n, bool *ignore_merges, struct error *err)
{
    struct text known = { 0 };
    for (const struct family *f = families; f < families + FAMILIES; f++)
        for (int i = 0; f->name[i] != NULL; i++) {
            text_printf(&known, "%s%s", known.n > 0 ? ", " : "", f->name[i]);
            if (strlen(f->name[i]) != n || memcmp(f->name[i], name, n) != 0)
                continue;
            free(known.s);
            *ignore_merges = f->ignore_merges;
            for (int k = 0; f->pattern[k] != NULL; k++)
                if (!add_pattern(p, f->pattern[k], err))
                    return false;
            return true;
        }
    fail(err, "the pre-tokenizer \"%.*s\" is not known (%s)", n < 64 ? (int)n : 64, name, known.s);
    free(known.s);
    return false;
}

const char *pretokenizer_family_of(bool digits, const char *pattern, bool ignore_merges)
{
    const char *const first = digits ? DIGIT : pattern != NULL ? pattern : GPT2, *const second = digits ? GPT2 : "";
    for (const struct family *f = families; f < families + FAMILIES; f++)
        if (f->ignore_merges == ignore_merges && strcmp(f->pattern[0], first) == 0 &&
            strcmp(f->pattern[1] != NULL ? f->pattern[1] : "", second) == 0 &&
            (f->pattern[1] == NULL || f->pattern[2] == NULL))
            return f->name[0];
    return NULL;
}
