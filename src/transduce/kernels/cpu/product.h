// Products of rows with a matrix, and what directly follows: scales, bias, activation, residual sum.
//
// Every result adds up the inputs one by one in their order, whatever tile it is computed in. So a row's results depend
// neither on the rows beside it nor on the number of threads.
#pragma once

#include "matrix.h"
#include "team.h"

namespace transduce {

// Rows of numbers as inputs of a product: as they are, or quantised with one scale per row.
struct Inputs {
    const float* values;  // (rows, stride)
    const Int8::Input* quantised;
    int64_t stride;        // of both; a row's inputs are padded with zeros to a whole group
    const float* scales;   // of each row
    const int32_t* sums;   // of each row's quantised numbers
};

// Of a row's logits in one panel: the largest, and the sum of e^(logit - the largest).
struct Summary {
    float largest, sum;
};

enum class Follow { NOTHING, RELU, GELU, SWIGLU, SILU };

struct Outputs {
    float* values;  // (rows, stride); whole panels are written
    int64_t stride;
    Follow follow = Follow::NOTHING;
    const float* residual = nullptr;  // (rows, stride): added to the result
    Summary* summaries = nullptr;     // (rows, panels), if wanted
    int count = 0;                    // of results that are summarised, without the padding of the last panel
};

// Prefetches weights that will be read soon: some cache lines at each step, into the nearest cache or the next.
struct Ahead {
    const char* place;
    int lines;
    bool near;

    void step() {
#pragma GCC unroll 1
        for (int line = 0; line < lines; ++line)
            near ? __builtin_prefetch(place + 64 * line, 0, 3) : __builtin_prefetch(place + 64 * line, 0, 2);
        place += 64 * lines;
    }
};

// ---- Sums of ROWS rows over one panel, which stay in registers until they are complete

template <int ROWS, class Sum>
inline void copy_sums(const Sum (&from)[ROWS][VECTORS], Sum (&to)[ROWS][VECTORS]) {
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
        for (int vector = 0; vector < VECTORS; ++vector) to[row][vector] = from[row][vector];
}

template <int ROWS>
inline void accumulate(const float* panel, int inputs, const float* rows, int64_t stride, Ahead ahead,
                       Floats (&results)[ROWS][VECTORS]) {
    Floats sums[ROWS][VECTORS] = {};
    for (int input = 0; input < inputs; ++input, panel += PANEL) {
        ahead.step();
        Floats weights[VECTORS];
#pragma GCC unroll 4
        for (int vector = 0; vector < VECTORS; ++vector) weights[vector] = load(panel + vector * LANES);
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; ++row) {
            const Floats value = broadcast(rows[row * stride + input]);
#pragma GCC unroll 4
            for (int vector = 0; vector < VECTORS; ++vector)
                sums[row][vector] = fma(value, weights[vector], sums[row][vector]);
        }
    }
    copy_sums(sums, results);
}

template <int ROWS>
inline void accumulate(const BrainFloat* panel, int inputs, const float* rows, int64_t stride, Ahead ahead,
                       Floats (&results)[ROWS][VECTORS]) {
    Floats sums[ROWS][VECTORS] = {};
    for (int input = 0; input < inputs; input += 2, panel += 2 * PANEL) {
        ahead.step();
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
            Floats weights[VECTORS];
#pragma GCC unroll 4
            for (int vector = 0; vector < VECTORS; ++vector) {
                const Words pairs = load_words(panel + 2 * vector * LANES);
                weights[vector] = as_floats(odd ? pairs & 0xffff0000u : pairs << 16);
            }
#pragma GCC unroll 6
            for (int row = 0; row < ROWS; ++row) {
                const Floats value = broadcast(rows[row * stride + input + odd]);
#pragma GCC unroll 4
                for (int vector = 0; vector < VECTORS; ++vector)
                    sums[row][vector] = fma(value, weights[vector], sums[row][vector]);
            }
        }
    }
    copy_sums(sums, results);
}

#if TRANSDUCE_VNNI || TRANSDUCE_NEON_DOT
using IntWeights = Words;  // four of 8 bits to a lane

inline IntWeights load_weights(const int8_t* from) { return load_words(from); }
#else
typedef int8_t Bytes __attribute__((vector_size(LANES * 2)));
typedef int8_t BytesAnywhere __attribute__((vector_size(LANES * 2), aligned(1), may_alias));
typedef int16_t IntWeights __attribute__((vector_size(LANES * 4)));  // two of 16 bits to a lane

inline IntWeights load_weights(const int8_t* from) {
    return __builtin_convertvector(static_cast<Bytes>(*reinterpret_cast<const BytesAnywhere*>(from)), IntWeights);
}
#endif

// Add to each lane's sum its weights times a group of inputs, the same for all lanes; exact.
inline Ints add_products(Ints sums, IntWeights weights, int32_t inputs) {
#if TRANSDUCE_VNNI && TRANSDUCE_AVX512
    return Ints(_mm512_dpbusd_epi32(__m512i(sums), __m512i(weights), _mm512_set1_epi32(inputs)));
#elif TRANSDUCE_VNNI
    return Ints(_mm256_dpbusd_avx_epi32(__m256i(sums), __m256i(weights), _mm256_set1_epi32(inputs)));
#elif TRANSDUCE_NEON_DOT
    return vdotq_s32(sums, vreinterpretq_s8_u32(weights), vreinterpretq_s8_s32(vdupq_n_s32(inputs)));
#elif TRANSDUCE_AVX512
    return sums + Ints(_mm512_madd_epi16(__m512i(weights), _mm512_set1_epi32(inputs)));
#elif TRANSDUCE_AVX2
    return sums + Ints(_mm256_madd_epi16(__m256i(weights), _mm256_set1_epi32(inputs)));
#else
    const Ints odd = Ints(weights) >> 16, even = Ints(Words(weights) << 16) >> 16;
    return sums + even * static_cast<int16_t>(inputs) + odd * (inputs >> 16);
#endif
}

template <int ROWS>
inline void accumulate(const int8_t* panel, int inputs, const Int8::Input* rows, int64_t stride, Ahead ahead,
                       Ints (&results)[ROWS][VECTORS]) {
    Ints sums[ROWS][VECTORS] = {};
    constexpr int GROUP = Int8::GROUP;
    for (int input = 0; input < inputs; input += GROUP, panel += GROUP * PANEL) {
        ahead.step();
        IntWeights weights[VECTORS];
#pragma GCC unroll 4
        for (int vector = 0; vector < VECTORS; ++vector) weights[vector] = load_weights(panel + GROUP * vector * LANES);
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; ++row) {
            int32_t group;
            std::memcpy(&group, rows + row * stride + input, 4);
#pragma GCC unroll 4
            for (int vector = 0; vector < VECTORS; ++vector)
                sums[row][vector] = add_products(sums[row][vector], weights[vector], group);
        }
    }
    copy_sums(sums, results);
}

// ---- What follows

inline Summary summarise(const Floats (&logits)[VECTORS]) {
    Floats largest = logits[0];
#pragma GCC unroll 4
    for (int vector = 1; vector < VECTORS; ++vector) largest = larger(logits[vector], largest);
    const float top = largest_of(largest);
    if (top == NONE) return {NONE, 0.0f};
    Floats sum{};
#pragma GCC unroll 4
    for (int vector = 0; vector < VECTORS; ++vector) sum += exponential(logits[vector] - top);
    return {top, sum_of(sum)};
}

// Of a panel that has only `count` logits.
inline Summary summarise(const float* logits, int count) {
    Floats some[VECTORS];
    for (int vector = 0; vector < VECTORS; ++vector) {
        const int here = std::min(LANES, count - vector * LANES);
        some[vector] = broadcast(NONE);
        if (here > 0) std::memcpy(&some[vector], logits + vector * LANES, here * sizeof(float));
    }
    return summarise(some);
}

inline Floats scaled(Floats sum, const Matrix&, const Inputs&, int, int) { return sum; }

inline Floats scaled(Ints sum, const Matrix& matrix, const Inputs& inputs, int row, int column) {
    if constexpr (Int8::OFFSET != 0) sum -= Int8::OFFSET * inputs.sums[row];
    return __builtin_convertvector(sum, Floats) * inputs.scales[row] * load(matrix.scales + column);
}

// Turn the sums (rows, VECTORS) of a tile into results.
template <class Sum>
__attribute__((noinline)) void finish(const Sum (*sums)[VECTORS], int rows, const Matrix& matrix, const Inputs& inputs,
                                      const Outputs& outputs, int first_row, int first_column) {
    for (int place = 0; place < rows; ++place) {
        const int row = first_row + place;
        Floats results[VECTORS];
#pragma GCC unroll 4
        for (int vector = 0; vector < VECTORS; ++vector) {
            const int column = first_column + vector * LANES;
            results[vector] = scaled(sums[place][vector], matrix, inputs, row, column);
            if (matrix.bias) results[vector] += load(matrix.bias + column);
        }
        const int64_t at = row * outputs.stride + first_column;
        switch (outputs.follow) {
            case Follow::NOTHING:
                break;
            case Follow::RELU:
#pragma GCC unroll 4
                for (Floats& result : results) result = relu(result);
                break;
            case Follow::GELU:
                for (Floats& result : results) result = gelu(result);
                break;
            case Follow::SILU:
                for (Floats& result : results) result = silu(result);
                break;
            case Follow::SWIGLU:  // two vectors become one
                for (int vector = 0; vector < VECTORS; vector += 2)
                    store(outputs.values + row * outputs.stride + (first_column + vector * LANES) / 2,
                          silu(results[vector]) * results[vector + 1]);
                continue;
        }
#pragma GCC unroll 4
        for (int vector = 0; vector < VECTORS; ++vector) {
            if (outputs.residual) results[vector] += load(outputs.residual + at + vector * LANES);
            store(outputs.values + at + vector * LANES, results[vector]);
        }
        if (outputs.summaries) {
            const int count = outputs.count - first_column;
            outputs.summaries[row * static_cast<int64_t>(matrix.columns / PANEL) + first_column / PANEL] =
                count >= PANEL ? summarise(results) : summarise(reinterpret_cast<const float*>(results), count);
        }
    }
}

// ---- Whole products

template <class Weight, int ROWS>
void tile(const Matrix& matrix, const Inputs& inputs, const typename Weight::Input* values, const Outputs& outputs,
          int row, int panel, Ahead ahead) {
    using Stored = typename Weight::Stored;
    const Stored* weights = static_cast<const Stored*>(matrix.panels) + panel * panel_size<Weight>(matrix.inputs);
    typename Weight::Sum sums[ROWS][VECTORS];
    accumulate<ROWS>(weights, matrix.inputs, values + row * inputs.stride, inputs.stride, ahead, sums);
    finish(sums, ROWS, matrix, inputs, outputs, row, panel * PANEL);
}

constexpr int64_t CHUNK = 1 << 19;  // bytes of rows that stay in the cache while all panels are read
constexpr int DISTANCE = 4096;      // how many bytes ahead of reading to prefetch if there are few rows

template <class Weight>
void multiply(const Matrix& matrix, const Inputs& inputs, const typename Weight::Input* values, int rows,
              const Outputs& outputs, const Worker& worker) {
    constexpr int LINES = std::max<int>(1, Weight::GROUP * PANEL * sizeof(typename Weight::Stored) / 64);
    const int64_t panel_bytes = panel_size<Weight>(matrix.inputs) * sizeof(typename Weight::Stored);
    const auto [first_panel, end_panel] = worker.share(matrix.columns / PANEL);
    const int64_t bytes = rows * inputs.stride * static_cast<int64_t>(sizeof(typename Weight::Input));
    const int chunks = static_cast<int>((bytes + CHUNK - 1) / CHUNK);
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const int first = part(rows, chunk, chunks), many = part(rows, chunk + 1, chunks) - first;
        const int tiles = (many + MOST_ROWS - 1) / MOST_ROWS;
        for (int panel = first_panel; panel < end_panel; ++panel) {
            const char* place = static_cast<const char*>(matrix.panels) + panel * panel_bytes;
            for (int number = 0; number < tiles; ++number) {
                const int row = first + part(many, number, tiles), end = first + part(many, number + 1, tiles);
                // The first tiles prefetch the next panel, a part each; a lone tile looks less far ahead.
                const int share = std::min(tiles, LINES), lines = number < share ? LINES / share : 0;
                const Ahead ahead{tiles == 1 ? place + DISTANCE : place + panel_bytes + panel_bytes / share * number,
                                  lines, tiles == 1};
                switch (end - row) {
                    case 1: tile<Weight, 1>(matrix, inputs, values, outputs, row, panel, ahead); break;
                    case 2: tile<Weight, 2>(matrix, inputs, values, outputs, row, panel, ahead); break;
                    case 3: tile<Weight, 3>(matrix, inputs, values, outputs, row, panel, ahead); break;
                    case 4: tile<Weight, 4>(matrix, inputs, values, outputs, row, panel, ahead); break;
                    case 5: tile<Weight, 5>(matrix, inputs, values, outputs, row, panel, ahead); break;
                    case 6: tile<Weight, 6>(matrix, inputs, values, outputs, row, panel, ahead); break;
                }
            }
        }
    }
}

// outputs = follow(inputs · matrix + bias) + residual, for this worker's share of the columns.
inline void multiply(Precision precision, const Matrix& matrix, const Inputs& inputs, int rows, const Outputs& outputs,
                     const Worker& worker) {
    switch (precision) {
        case Precision::FLOAT32:
            return multiply<Float32>(matrix, inputs, inputs.values, rows, outputs, worker);
        case Precision::BF16:
            return multiply<BF16>(matrix, inputs, inputs.values, rows, outputs, worker);
        case Precision::INT8:
            return multiply<Int8>(matrix, inputs, inputs.quantised, rows, outputs, worker);
    }
}

}  // namespace transduce
