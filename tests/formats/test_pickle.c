// test_pickle.c - a pickle of anything but tensors is refused with an error that names the place and the reason, and a
// pickle built to be expensive is cheap to read.
//
// Each is the data.pkl of an otherwise valid archive with a storage "0" of 24 bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "formats/pickle.h"
#include "formats/shards.h"
#include "tests/formats/torch_archive.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/shards_find.h"
#include "tests/support/small_model.h"

static struct error err;
static struct text bytes; // the pickle being built

static void raw(const char *s, size_t n)
{
    text_add(&bytes, s, n);
}

static void op(const char *opcodes) // none of them is NUL
{
    text_puts(&bytes, opcodes);
}

static void text(const char *s)
{
    pickled_text(&bytes, s);
}

static void number(int64_t v)
{
    pickled_int(&bytes, v);
}

static void global(const char *module, const char *name)
{
    pickled_global(&bytes, module, name);
}

static void tensor(struct pickled_tensor t)
{
    pickled_tensor(&bytes, &t);
}

static void start(void)
{
    bytes.n = 0;
    raw("\x80\x02", 2);
}

// {"t": this tensor}
#define TENSOR(...) (op("}"), text("t"), tensor((struct pickled_tensor){ __VA_ARGS__ }), op("s."))
#define WHOLE .elements = 6, .dims = 2, .dim = { 2, 3 }

static struct shards *open_pickle(const char *path)
{
    struct archive a = archive_of(&bytes, 24);
    archive_end(&a);
    file_write_bytes(path, a.bytes.s, a.bytes.n);
    archive_free(&a);
    return shards_open(path, &err);
}

// Calls and imports that must not happen.

// clang-format off
static void os_system(void) { global("os", "system"); text("true"); op("\x85R."); }
static void evaluate(void) { global("builtins", "eval"); text("1"); op("\x85R."); }
static void attribute(void) { global("builtins", "getattr"); }
static void load_again(void) { global("torch", "load"); }
static void rebuild_other(void) { global("torch._utils", "_rebuild_sparse_tensor"); }
static void longer_name(void) { global("collections", "OrderedDictX"); }
static void shorter_name(void) { global("collections", "OrderedDic"); }
static void no_name(void) { global("", ""); }
static void with_colours(void) { global("os\x1b[31m", "system\a"); }
static void dotted(void) { raw("\x8c\x0b" "collections" "\x8c\x17" "OrderedDict.__init__.xx\x93", 39); }
static void on_the_stack(void) { raw("\x8c\x05posix\x8c\x06system\x93", 16); }
static void stack_of_numbers(void) { op("K\x01K\x02\x93"); }
static void text_and_number(void) { raw("\x8c\x05posixK\x01\x93", 10); }
static void number_and_text(void) { raw("K\x01\x8c\x05posix\x93", 10); }
static void inst(void) { op("(ios\nsystem\n."); }
static void half_a_name(void) { op("cos\nsystem"); }
static void call_a_storage(void) { global("torch", "FloatStorage"); op(")R."); }
static void call_a_number(void) { op("K\x01)R."); }
static void call_a_call(void) { global("torch._utils", "_rebuild_tensor_v2"); op(")R)R."); }
static void call_with_a_list(void) { global("collections", "OrderedDict"); op("]R."); }
static void ordered_with_arguments(void) { global("collections", "OrderedDict"); op("]\x85R."); }
static void build_a_dict(void) { op("}}b."); }
static void build_a_tensor(void) { global("torch._utils", "_rebuild_tensor_v2"); op(")R}b."); }
static void build_a_tuple(void) { op("]"); global("collections", "OrderedDict"); op(")Ra)}b."); }
static void build_a_class(void) { global("collections", "OrderedDict"); op("}b."); }

// Malformed programs.
static void nothing(void) { bytes.n = 0; }
static void one_byte(void) { bytes.n = 1; }
static void protocol_6(void) { bytes.s[1] = 6; op("}."); }
static void protocol_1(void) { bytes.s[1] = 1; op("}."); }
static void no_protocol(void) { bytes.s[0] = '}'; op("}."); }
static void protocol_twice(void) { raw("\x80\x02}.", 4); }
static void no_stop(void) { op("}"); }
static void no_opcode(void) { op("\xff"); }
static void tuple_at_once(void) { op(")."); }
static void stop_at_once(void) { op("."); }
static void stop_with_two(void) { op("}}."); }
static void stop_under_a_mark(void) { op("}(."); }
static void behind_stop(void) { op("}.N"); }
static void long_text(void) { raw("X\xff\xff\xff\xff" "abc", 8); }
static void long_short_text(void) { raw("\x8c\xff" "abc", 5); }
static void text_without_length(void) { raw("X\1\0", 3); }
static void long_of_9(void) { raw("\x8a\x09\0\0\0\0\0\0\0\0\0.", 12); }
static void long_of_255(void) { raw("\x8a\xff", 2); }
static void short_int(void) { raw("J\1\2\3", 4); }
static void short_real(void) { raw("G\1\2\3", 4); }
static void long_frame(void) { raw("\x95\xff\xff\xff\xff\xff\xff\xff\xff}.", 11); }
static void get_nothing(void) { raw("h\0.", 3); }
static void get_far(void) { raw("Nq\0j\xff\xff\xff\xff.", 9); }
static void put_nothing(void) { raw("q\0", 2); }
static void put_far(void) { raw("Nr\xff\xff\xff\xff", 6); }
static void put_twice(void) { raw("Nq\0q\0", 5); }
static void no_mark(void) { op("NNt."); }
static void few_for_a_tuple(void) { op("NN\x87."); }
static void across_a_mark(void) { op("}(NNs"); }
static void below_nothing(void) { op("(NNu"); }
static void odd_items(void) { op("}(NNNu."); }
static void fill_a_tuple(void) { op(")NNs."); }
static void lengthen_a_dict(void) { op("}Na."); }
static void lengthen_a_tuple(void) { op(")(Ne."); }
static void id_of_text(void) { text("0"); op("Q."); }

// Values that are not a state_dict.
static void a_number(void) { op("K\x01."); }
static void a_class(void) { global("torch", "FloatStorage"); op("."); }
static void empty(void) { op("}."); }
static void itself_alone(void) { raw("}q\0", 3); text("model"); raw("h\0s.", 4); }
static void same_name(void) { op("}("); text("t"); tensor((struct pickled_tensor){ WHOLE }); text("t");
                              tensor((struct pickled_tensor){ WHOLE }); op("u."); }
static void bad_utf8(void) { op("}"); text("\xff"); tensor((struct pickled_tensor){ WHOLE }); op("s."); }
static void nul_in_name(void) { op("}"); raw("X\2\0\0\0a\0", 7); tensor((struct pickled_tensor){ WHOLE }); op("s."); }
static void number_as_name(void) { op("}K\x01"); tensor((struct pickled_tensor){ WHOLE }); op("s."); }
static void endless_name(void) { char s[1002] = { 0 }; memset(s, 'a', 1001); op("}"); text(s);
                                 tensor((struct pickled_tensor){ WHOLE }); op("s."); }
static void in_another(void) { op("}"); text("weights"); op("}"); text("t"); tensor((struct pickled_tensor){ WHOLE });
                               op("ss."); }
static void in_a_number(void) { op("}K\x01}"); text("t"); tensor((struct pickled_tensor){ WHOLE }); op("ss."); }
static void in_two(void) { op("}("); text("model"); op("}"); text("t"); tensor((struct pickled_tensor){ WHOLE });
                           raw("sq\0", 3); text("module"); raw("h\0u.", 4); }
static void too_deep(void) { op("}"); text("model"); op("}"); text("state_dict"); op("}"); text("t");
                             tensor((struct pickled_tensor){ WHOLE }); op("sss."); }

// Values that are not a tensor.
static void named(const char *function) { op("}"); text("t"); global("torch._utils", function); } // {"t": it, ...
static void no_arguments(void) { named("_rebuild_tensor_v2"); op(")Rs."); }
static void other_arguments(void) { named("_rebuild_tensor_v2"); op("(NNNNtRs."); }
static void parameter_of_nothing(void) { named("_rebuild_parameter"); op(")Rs."); }
static void parameter_of_parameter(void) { named("_rebuild_parameter");
                                           global("torch._utils", "_rebuild_parameter"); op(")R\x85Rs."); }
static void id(const char *first, const char *module, const char *type, int64_t elements)
{
    named("_rebuild_tensor_v2"); op("(("); text(first); global(module, type); text("0");
    text("cpu"); number(elements); op("tQK\x01))tRs.");
}
static void id_of_number(void) { named("_rebuild_tensor_v2"); op("(("); text("storage");
                                 global("torch", "FloatStorage"); number(0); text("cpu"); number(6);
                                 op("tQK\x01))tRs."); }
static void id_of_2(void) { named("_rebuild_tensor_v2"); op("(NN\x86QK\x01))tRs."); }
static void id_of_module(void) { id("module", "torch", "FloatStorage", 6); }
static void id_of_dict(void) { id("storage", "collections", "OrderedDict", 6); }
static void id_negative(void) { id("storage", "torch", "FloatStorage", -1); }
static void shaped(const char *size, const char *stride)
{
    named("_rebuild_tensor_v2"); op("(("); text("storage"); global("torch", "FloatStorage"); text("0");
    text("cpu"); number(6); op("tQ"); number(0); op(size); op(stride); op("tRs.");
}
static void text_as_dim(void) { shaped("\x8c\1x\x85", "K\1\x85"); }
static void text_as_stride(void) { shaped("K\1\x85", "\x8c\1x\x85"); }
static void no_storage(void) { TENSOR(.key = "1", WHOLE); }
static void outside(void) { TENSOR(.key = "../version", WHOLE); }
static void long_key(void) { char s[66] = { 0 }; memset(s, '0', 65); TENSOR(.key = s, WHOLE); }
static void other_size(void) { TENSOR(.elements = 7, .dims = 1, .dim = { 6 }); }
static void other_type(void) { TENSOR(.type = "HalfStorage", WHOLE); }
static void overflowing(void) { TENSOR(.elements = 1LL << 62 | 6, .dims = 1, .dim = { 6 }); }
static void nine_dims(void) { TENSOR(.elements = 6, .dims = 9, .dim = { 1, 1, 1, 1, 1, 1, 1, 1, 6 }); }
static void negative_dim(void) { TENSOR(.elements = 6, .dims = 2, .dim = { -2, -3 }); }
static void endless_dims(void) { TENSOR(.elements = 6, .dims = 2, .dim = { 1LL << 32, 1LL << 32 }); }
static void half_endless(void) { TENSOR(.elements = 6, .dims = 3, .dim = { 1LL << 31, 1LL << 31, 2 }); }
static void more_strides(void) { TENSOR(WHOLE, .strides = 3, .stride = { 3, 1, 1 }); }
static void transposed(void) { TENSOR(WHOLE, .strides = 2, .stride = { 1, 2 }); }
static void backwards(void) { TENSOR(.elements = 6, .offset = 5, .dims = 1, .dim = { 6 }, .strides = 1,
                                      .stride = { -1 }); }
static void offset_negative(void) { TENSOR(.elements = 6, .offset = -1, .dims = 1, .dim = { 6 }); }
static void offset_beyond(void) { TENSOR(.elements = 6, .offset = 1, .dims = 1, .dim = { 6 }); }
static void offset_endless(void) { TENSOR(.elements = 6, .offset = INT64_MAX, .dims = 1, .dim = { 1 }); }
static void empty_beyond(void) { TENSOR(.elements = 6, .offset = 7, .dims = 1, .dim = { 0 }); }
static void too_large(void) { TENSOR(.elements = 6, .dims = 1, .dim = { 7 }); }
static void largest(void) { TENSOR(.elements = 6, .dims = 1, .dim = { INT64_MAX }); }
// clang-format on

static void a_pickle_with_one_fault_is_refused(void **state)
{
    static const struct {
        void (*make)(void);
        const char *words;
    } faults[] = {
        { os_system,
          "archive/data.pkl: byte 2 (GLOBAL): expected a name that a state_dict is made of, found os system" },
        { evaluate,
          "byte 2 (GLOBAL): expected a name that a state_dict is made of, found builtins eval; the pickle was not executed" },
        { attribute, "found builtins getattr" },
        { load_again, "found torch load" },
        { rebuild_other, "found torch._utils _rebuild_sparse_tensor" },
        { longer_name, "found collections OrderedDictX" },
        { shorter_name, "found collections OrderedDic" },
        { no_name, "expected a name that a state_dict is made of" },
        { with_colours, "found os?[31m system?" },
        { dotted, "found collections OrderedDict.__init__.xx" },
        { on_the_stack, "byte 17 (STACK_GLOBAL): expected a name that a state_dict is made of, found posix system" },
        { stack_of_numbers,
          "(STACK_GLOBAL): expected two texts, a module and a name, found an integer and an integer" },
        { text_and_number, "expected two texts, a module and a name, found a text and an integer" },
        { number_and_text, "expected two texts, a module and a name, found an integer and a text" },
        { inst, "byte 3: expected the opcodes of a state_dict, found INST (0x69)" },
        { half_a_name, "byte 2 (GLOBAL): the pickle ends too early" },
        { call_a_storage, "(REDUCE): expected a function and a tuple of arguments, found the name of a class" },
        { call_a_number, "(REDUCE): expected a function and a tuple of arguments, found an integer" },
        { call_a_call, "(REDUCE): expected a function and a tuple of arguments, found a tensor and a tuple" },
        { call_with_a_list,
          "(REDUCE): expected a function and a tuple of arguments, found the name of a class and a list" },
        { ordered_with_arguments, "(REDUCE): expected OrderedDict() without arguments, found 1" },
        { build_a_dict, "(BUILD): expected attributes of an OrderedDict, found those of a dictionary" },
        { build_a_tensor, "(BUILD): expected attributes of an OrderedDict, found those of a tensor" },
        { build_a_tuple, "(BUILD): expected attributes of an OrderedDict, found those of a tuple" },
        { build_a_class, "(BUILD): expected attributes of an OrderedDict, found those of the name of a class" },
        { nothing, "expected a pickle of protocol 2 to 5" },
        { one_byte, "expected a pickle of protocol 2 to 5, found one that begins with 80" },
        { protocol_6, "expected a pickle of protocol 2 to 5, found one that begins with 80 06" },
        { protocol_1, "expected a pickle of protocol 2 to 5, found one that begins with 80 01" },
        { no_protocol, "expected a pickle of protocol 2 to 5, found one that begins with 7d 02" },
        { protocol_twice, "byte 2: expected the opcodes of a state_dict, found PROTO (0x80)" },
        { no_stop, "the pickle ends too early: expected STOP, found its end at byte 3" },
        { no_opcode, "byte 2: expected the opcodes of a state_dict, found an invalid opcode (0xff)" },
        { tuple_at_once, "expected a state_dict, a dictionary of tensors, found a tuple" },
        { stop_at_once, "byte 2 (STOP): expected at least 1 on the stack, found 0" },
        { stop_with_two, "byte 4 (STOP): expected 1 on the stack, found 2" },
        { stop_under_a_mark, "byte 4 (STOP): expected at least 1 on the stack, found 0" },
        { behind_stop, "expected the pickle to end with STOP, found 1 bytes after it" },
        { long_text, "byte 2 (BINUNICODE): the pickle ends too early: expected 4294967295 bytes more, found 3" },
        { long_short_text, "byte 2 (SHORT_BINUNICODE): the pickle ends too early: expected 255 bytes more, found 3" },
        { text_without_length, "byte 2 (BINUNICODE): the pickle ends too early: expected 4 bytes more, found 2" },
        { long_of_9, "byte 2 (LONG1): expected an integer of at most 8 bytes, found one of 9" },
        { long_of_255, "byte 2 (LONG1): expected an integer of at most 8 bytes, found one of 255" },
        { short_int, "byte 2 (BININT): the pickle ends too early" },
        { short_real, "byte 2 (BINFLOAT): the pickle ends too early" },
        { long_frame, "byte 2 (FRAME): the frame is longer than the pickle" },
        { get_nothing, "byte 2 (BINGET): expected a memo index below 0, found 0" },
        { get_far, "byte 5 (LONG_BINGET): expected a memo index below 1, found 4294967295" },
        { put_nothing, "byte 2 (BINPUT): expected at least 1 on the stack, found 0" },
        { put_far, "byte 3 (LONG_BINPUT): expected memo index 0 next, found 4294967295" },
        { put_twice, "byte 5 (BINPUT): expected memo index 1 next, found 0" },
        { no_mark, "byte 4 (TUPLE): expected a mark on the stack, found none" },
        { few_for_a_tuple, "byte 4 (TUPLE3): expected at least 3 on the stack, found 2" },
        { across_a_mark, "byte 6 (SETITEM): expected at least 3 on the stack, found 2" },
        { below_nothing, "byte 5 (SETITEMS): expected at least 3 on the stack, found 2" },
        { odd_items, "byte 7 (SETITEMS): expected keys and values in turn, found 3 of them" },
        { fill_a_tuple, "byte 5 (SETITEM): expected a dictionary to add to, found a tuple" },
        { lengthen_a_dict, "byte 4 (APPEND): expected a list to append to, found a dictionary" },
        { lengthen_a_tuple, "byte 5 (APPENDS): expected a list to append to, found a tuple" },
        { id_of_text, "(BINPERSID): expected the tuple of a persistent id, found a text" },
        { a_number, "expected a state_dict, a dictionary of tensors, found an integer" },
        { a_class, "expected a state_dict, a dictionary of tensors, found the name of a class" },
        { empty, "expected a state_dict, a dictionary of tensors, found one without tensors" },
        { itself_alone, "found one without tensors" },
        { same_name, "two tensors are named t" },
        { bad_utf8, "tensor ?: expected a name of UTF-8 without NUL" },
        { nul_in_name, "tensor a?: expected a name of UTF-8 without NUL" },
        { number_as_name, "expected the name of a tensor, found an integer" },
        { endless_name, "expected a name of at most 1000 bytes, found 1001" },
        { in_another, "or one in it called state_dict, model or module, found tensors only under weights" },
        { in_a_number, "found tensors only under an integer" },
        { in_two, "found several, model and module" },
        { too_deep, "found one without tensors" },
        { no_arguments, "tensor t: expected a storage, an offset, a size and strides, found other arguments" },
        { other_arguments, "tensor t: expected a storage, an offset, a size and strides, found other arguments" },
        { parameter_of_nothing, "tensor t: expected a storage, an offset, a size and strides, found other arguments" },
        { parameter_of_parameter,
          "tensor t: expected a storage, an offset, a size and strides, found other arguments" },
        { id_of_number, "expected a storage: its type, key, place and number of elements, found something else" },
        { id_of_2, "tensor t: expected a storage: its type, key, place and number of elements, found something else" },
        { id_of_module,
          "tensor t: expected a storage: its type, key, place and number of elements, found something else" },
        { id_of_dict,
          "tensor t: expected a storage: its type, key, place and number of elements, found something else" },
        { id_negative,
          "tensor t: expected a storage: its type, key, place and number of elements, found something else" },
        { text_as_dim, "tensor t: dimension 0 of its shape is not a size" },
        { text_as_stride, "found shape [1] with strides [-1]" },
        { no_storage, "tensor t: expected storage 1 in the archive, found none" },
        { outside, "tensor t: expected storage ../version in the archive, found none" },
        { long_key, "tensor t: expected storage 0000" },
        { other_size, "tensor t: expected storage 0 to hold 7 elements of F32, found 24 bytes" },
        { other_type, "tensor t: expected storage 0 to hold 6 elements of F16, found 24 bytes" },
        { overflowing, "tensor t: expected storage 0 to hold 4611686018427387910 elements of F32, found 24 bytes" },
        { nine_dims, "tensor t: expected at most 8 dimensions, found 9" },
        { negative_dim, "tensor t: dimension 0 of its shape is not a size" },
        { endless_dims, "tensor t: its shape is too large for any file" },
        { half_endless, "found 9223372036854775808 from element 0 on" },
        { more_strides, "tensor t: expected 2 strides, found 3" },
        { transposed, "tensor t: expected a contiguous tensor, found shape [2, 3] with strides [1, 2]" },
        { backwards, "found shape [6] with strides [-1]" },
        { offset_negative, "expected it to lie in its storage of 6 elements, found 6 from element -1 on" },
        { offset_beyond, "expected it to lie in its storage of 6 elements, found 6 from element 1 on" },
        { offset_endless, "found 1 from element 9223372036854775807 on" },
        { empty_beyond, "found 0 from element 7 on" },
        { too_large, "found 7 from element 0 on" },
        { largest, "found 9223372036854775807 from element 0 on" },
    };
    char *path = test_path("fault.pt");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        start();
        faults[i].make();
        assert_null(open_pickle(path));
        assert_error_mentions(&err, path, faults[i].words);
    }
    start();
    TENSOR(WHOLE);
    struct shards *t = open_pickle(path); // the valid pickle opens
    assert_non_null(t);
    shards_close(t);
    free(path);
}

static void opcodes_that_no_state_dict_needs_are_refused(void **state)
{
    static const char needed[] = "(.JKMNQRXabce}]hjqrstu)G"
                                 "\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95";
    int refused = 0;
    for (int code = 1; code < 256; code++) {
        if (strchr(needed, code) != NULL)
            continue;
        start();
        raw((char[]){ (char)code }, 1);
        op("}.");
        char *words = xformat("(0x%02x); the pickle was not executed", (unsigned)code);
        assert_null(pickle_read("pickle", (const uint8_t *)bytes.s, bytes.n, &err));
        if (strstr(err.text, words) == NULL || strstr(err.text, "byte 2: expected the opcodes of a state_dict") == NULL)
            fail_msg("0x%02x: %s", code, err.text);
        free(words);
        refused++;
    }
    assert_int_equal(refused, 255 - (int)strlen(needed));
}

// On an empty stack every opcode fails, instead of reading below it.
static void no_opcode_reaches_below_the_stack(void **state)
{
    for (int code = 0; code < 256; code++) {
        uint8_t *alone = xmalloc(3); // exact size, so that a sanitizer sees overreads
        memcpy(alone, (uint8_t[]){ 0x80, 2, (uint8_t)code }, 3);
        *err.text = '\0';
        assert_null(pickle_read("pickle", alone, 3, &err));
        assert_non_null(strstr(err.text, "pickle: "));
        free(alone);
    }
}

// {"t": a tensor, "rest": what `rest` pushes}
static void opens_beside(const char *path, void (*rest)(void))
{
    start();
    op("}(");
    text("t");
    tensor((struct pickled_tensor){ WHOLE });
    text("rest");
    rest();
    op("u.");
    struct shards *t = open_pickle(path);
    assert_ok(t != NULL, err);
    assert_int_equal(shards_count(t), 1);
    assert_int_equal(shards_find(t, "t")->bytes, 24);
    shards_close(t);
}

static void doubled(void) // (((..., ...), (..., ...)), ...): of 2^200 leaves
{
    op("N\x94");
    for (int i = 0; i < 200; i++)
        raw((char[]){ 'h', (char)i, 'h', (char)i, '\x86', '\x94' }, 6);
    for (int i = 0; i < 200; i++)
        op("\x86"); // combines the remaining values
}

static void nested(void)
{
    op(")");
    for (int i = 0; i < 1000000; i++)
        op("\x85");
}

static void nested_dicts(void) // {1: {1: {1: ...}}}
{
    for (int i = 0; i < 300000; i++)
        op("}K\x01");
    op("N");
    for (int i = 0; i < 300000; i++)
        op("s");
}

static void itself(void) // a dictionary in itself, in a tuple in itself
{
    op("}\x94K\x01");
    raw("h\0s", 3);
    op("K\x02");
    raw("h\0h\0\x86s", 6);
}

static void deep_and_cyclic_values_cost_linear_time(void **state)
{
    char *path = test_path("bomb.pt");
    opens_beside(path, doubled);
    opens_beside(path, nested);
    opens_beside(path, nested_dicts);
    opens_beside(path, itself);
    free(path);
}

static void values_that_are_not_tensors_are_ignored(void **state)
{
    char *path = test_path("beside.pt");
    start();
    op("}(");
    text("epoch");
    number(1LL << 40);
    text("model");
    op("}");
    text("t");
    tensor((struct pickled_tensor){ WHOLE });
    op("su.");
    struct shards *t = open_pickle(path);
    assert_non_null(t);
    assert_int_equal(shards_count(t), 1);
    shards_close(t);
    free(path);
}

// {0: d, 0: d, ...} with a large d, which must not be searched once per key.
static void many_references_to_a_large_dictionary_cost_one(void **state)
{
    char *path = test_path("quadratic.pt");
    start();
    op("}(K\x01}\x94(");
    for (int i = 0; i < 1000000; i++)
        op("NN");
    op("u");
    for (int i = 0; i < 1000000; i++)
        raw("Nh\0", 3);
    op("u.");
    assert_null(open_pickle(path));
    assert_error_mentions(&err, path, "found one without tensors");
    free(path);
}

static void too_many_tensors_are_refused(void **state)
{
    char *path = test_path("many.pt");
    start();
    op("}(");
    text("t");
    op("\x94");
    tensor((struct pickled_tensor){ WHOLE });
    op("\x94");
    for (int i = 0; i < 1 << 18; i++)
        raw("h\0h\1", 4);
    op("u.");
    assert_null(open_pickle(path));
    assert_error_mentions(&err, path, "expected at most 262144 tensors, found more");
    free(path);
}

static void too_much_of_anything_is_refused(void **state)
{
    enum { MANY = (1 << 22) + 1 };
    static const struct {
        const char *first, *again, *words;
    } heaps[] = {
        { "", "N", "(NONE): expected a state_dict, found more than 4194304 values" },
        { "", "(", "(MARK)" },
        { "N", "\x94", "(MEMOIZE)" },
        { "N", "\x85", "(TUPLE1)" },
        { "}", "NNs", "(SETITEM)" },
        { "]", "}a", "(EMPTY_DICT)" },
    };
    for (size_t k = 0; k < sizeof(heaps) / sizeof(*heaps); k++) {
        start();
        op(heaps[k].first);
        for (int i = 0; i < MANY; i++)
            op(heaps[k].again);
        assert_null(pickle_read("pickle", (const uint8_t *)bytes.s, bytes.n, &err));
        assert_error_mentions(&err, "pickle", heaps[k].words);
    }
    start();
    char *zeros = xcalloc(1 << 26, 1);
    raw(zeros, 1 << 26);
    assert_null(pickle_read("pickle", (const uint8_t *)bytes.s, bytes.n, &err));
    assert_error_mentions(&err, "pickle", "expected a pickle of at most 67108864 bytes, found 67108866");
    free(zeros);
}

// As in Python.
static void adding_nothing_to_an_empty_dictionary_is_allowed(void **state)
{
    char *path = test_path("nothing.pt");
    start();
    op("}(u");
    text("t");
    tensor((struct pickled_tensor){ WHOLE });
    op("s.");
    snprintf(err.text, sizeof(err.text), "no sentence");
    struct shards *s = open_pickle(path);
    assert_ok(s != NULL, err);
    assert_int_equal(shards_count(s), 1);
    assert_string_equal(shards_at(s, 0)->name, "t");
    shards_close(s);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pickle_with_one_fault_is_refused),
        cmocka_unit_test(adding_nothing_to_an_empty_dictionary_is_allowed),
        cmocka_unit_test(opcodes_that_no_state_dict_needs_are_refused),
        cmocka_unit_test(no_opcode_reaches_below_the_stack),
        cmocka_unit_test(deep_and_cyclic_values_cost_linear_time),
        cmocka_unit_test(values_that_are_not_tensors_are_ignored),
        cmocka_unit_test(many_references_to_a_large_dictionary_cost_one),
        cmocka_unit_test(too_many_tensors_are_refused),
        cmocka_unit_test(too_much_of_anything_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    free(bytes.s);
    return failed;
}
