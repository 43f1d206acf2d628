// The plain C functions that Python calls. They return a null pointer or 0 if memory or threads run out.

#include "encode.h"
#include "hypotheses.h"

using namespace transduce;

namespace {

template <class Function>
bool fits(Function function) {
    try {
        function();
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Pack a model's weights. The first two tensors (the embeddings) are read in place, so they must outlive the engine.
Engine* transduce_engine(const Sizes* sizes, const float* const* tensors) {
    Engine* engine = nullptr;
    fits([&] { engine = new Engine(*sizes, tensors); });
    return engine;
}

void transduce_engine_free(Engine* engine) { delete engine; }

// Make room for sentences; the engine and the positions must outlive it.
Lines* transduce_open(const Engine* engine, const Capacity* capacity, const Positions* positions) {
    Lines* lines = nullptr;
    fits([&] { lines = new Lines(*engine, *capacity, *positions); });
    return lines;
}

void transduce_close(Lines* lines) { delete lines; }

// Encode sentences (offsets: count + 1) into slots.
int transduce_admit(Lines* lines, int32_t count, const int32_t* slots, const int32_t* tokens, const int32_t* offsets) {
    return fits([&] { lines->admit(count, slots, tokens, offsets); });
}

// Take one token for each line of the slots (count, beam), which continues a parent (count, beam), and write logits
// (count · beam, stride), in whole panels. Return -1 if the arguments are not valid.
int transduce_advance(Lines* lines, int32_t count, const int32_t* slots, const int32_t* tokens, const int32_t* parents,
                      float* logits, int64_t stride) {
    if (!lines->allows(count, slots, tokens, parents)) return -1;
    return fits([&] { lines->advance(count, slots, tokens, parents, logits, stride); });
}

int transduce_best(Lines* lines, const Choices* choices) {
    return fits([&] { lines->best(*choices); });
}

int transduce_run(Lines* lines, const Hypotheses* hypotheses, const Trees* trees, int32_t steps) {
    return fits([&] { lines->run(*hypotheses, trees, steps); });
}

// The columns that a row of logits must have room for.
int32_t transduce_columns(int32_t vocabulary) { return count_columns(vocabulary, false); }

// The kind of machine the code was compiled for.
const char* transduce_kind() {
#if TRANSDUCE_VNNI && TRANSDUCE_AVX512
    return "AVX-512 VNNI";
#elif TRANSDUCE_AVX512
    return "AVX-512";
#elif TRANSDUCE_VNNI
    return "AVX2 VNNI";
#elif TRANSDUCE_AVX2
    return "AVX2";
#elif TRANSDUCE_NEON_DOT
    return "NEON dot products";
#else
    return "plain";
#endif
}

}  // extern "C"
#pragma GCC visibility pop
