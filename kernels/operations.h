// operations.h - the signatures of the tensor operations of struct backend, as lists for code that treats all
// operations alike: the code that counts their time (timed.c), a backend that wraps another
// (tests/device/host_memory_device.c), and the declarations and tables of backends. A new operation is a member of
// struct backend, and a signature and a line here.
//
// A signature has the parameters after the backend, in order: OUT(tensor that is written), IN(tensor that is only
// read), ARG(type, name). VOID lists an operation that returns nothing, VALUE one that returns its tensor.
#pragma once

#define MATMUL_SIGNATURE(OUT, IN, ARG) IN(x) ARG(const struct product *, p) ARG(int, count)
#define GATED_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x) IN(gate) IN(up) ARG(enum gate_function, f)
#define GROUPED_SIGNATURE(OUT, IN, ARG) \
    OUT(out) IN(x) ARG(const int32_t *, row) ARG(const struct row_group *, g) ARG(int, count) ARG(enum gate_function, f)
#define ADD_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x)
#define RMSNORM_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x) IN(w) ARG(float, eps)
#define GLU_SIGNATURE(OUT, IN, ARG) OUT(out) IN(gate) IN(up) ARG(enum gate_function, f)
#define RESCALE_SIGNATURE(OUT, IN, ARG) OUT(x) ARG(float, scale) ARG(float, cap)
#define ANGLES_SIGNATURE(OUT, IN, ARG) OUT(out) ARG(const struct layout *, s) IN(inverse_frequency)
#define ATTEND_SIGNATURE(OUT, IN, ARG) \
    OUT(out) IN(q) IN(k) IN(v) IN(angles) OUT(keys) OUT(values) ARG(const struct layout *, s) ARG(struct attention, a)
#define TAKE_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x) ARG(const int32_t *, row)
#define EMBED_SIGNATURE(OUT, IN, ARG) OUT(out) IN(table) ARG(const struct layout *, s)
#define JOIN_SIGNATURE(OUT, IN, ARG) \
    OUT(out) \
    OUT(x) IN(table) IN(states) IN(token_norm) IN(state_norm) ARG(const struct layout *, s) ARG(struct joining, how)
#define KEEP_STATES_SIGNATURE(OUT, IN, ARG) \
    OUT(states) IN(x) ARG(const struct layout *, s) ARG(int, of_slot) ARG(bool, roots)
#define MIX_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x) ARG(const int32_t *, row) ARG(const float *, weight) ARG(int, k)
#define PLACE_SIGNATURE(OUT, IN, ARG) OUT(out) ARG(int, column) IN(x)
#define CUT_SIGNATURE(OUT, IN, ARG) OUT(out) IN(x) ARG(int, column)
#define MOVE_SIGNATURE(OUT, IN, ARG) \
    ARG(const struct tensor *, x) ARG(int, count) ARG(const struct row_run *, run) ARG(int, runs)
#define BEST_SIGNATURE(OUT, IN, ARG) IN(logits) ARG(int, k) ARG(int32_t *, token) ARG(float *, log_p)

#define ROW_OPERATIONS(VOID, VALUE) \
    VOID(add, ADD_SIGNATURE) \
    VALUE(rmsnorm, RMSNORM_SIGNATURE) \
    VOID(glu, GLU_SIGNATURE) \
    VOID(rescale, RESCALE_SIGNATURE) \
    VOID(angles, ANGLES_SIGNATURE) \
    VOID(take, TAKE_SIGNATURE) \
    VOID(embed, EMBED_SIGNATURE) \
    VALUE(join, JOIN_SIGNATURE) \
    VOID(keep_states, KEEP_STATES_SIGNATURE) \
    VOID(mix, MIX_SIGNATURE) \
    VOID(place, PLACE_SIGNATURE) \
    VOID(cut, CUT_SIGNATURE) \
    VOID(best, BEST_SIGNATURE)

// The operations that do most of the work.
#define HEAVY_OPERATIONS(VOID, VALUE) \
    VALUE(gated, GATED_SIGNATURE) \
    VALUE(grouped, GROUPED_SIGNATURE) \
    VALUE(attend, ATTEND_SIGNATURE)

#define ALL_OPERATIONS(VOID, VALUE) \
    VOID(matmul, MATMUL_SIGNATURE) \
    HEAVY_OPERATIONS(VOID, VALUE) \
    ROW_OPERATIONS(VOID, VALUE) \
    VOID(move, MOVE_SIGNATURE)

// These expand to (struct backend *b, struct tensor out, ..), and to the arguments after the backend in a call of
// another backend's operation: , out, ..
#define OPERATION_PARAMETERS(SIGNATURE) \
    (struct backend * b SIGNATURE(PARAMETER_TENSOR, PARAMETER_TENSOR, PARAMETER_OTHER))
#define OPERATION_ARGUMENTS(SIGNATURE) SIGNATURE(ARGUMENT_TENSOR, ARGUMENT_TENSOR, ARGUMENT_OTHER)
#define PARAMETER_TENSOR(name) , struct tensor name
#define PARAMETER_OTHER(type, name) , type name
#define ARGUMENT_TENSOR(name) , name
#define ARGUMENT_OTHER(type, name) , name
