// Weights as products read them: in panels of some columns (outputs), each one stream of memory.
//
// A panel is [group of inputs][column][inputs of the group]; the last group and panel are padded with zeros.
//   float32   groups of one input
//   bf16      pairs, so that a 32-bit word holds an even input in its lower half and an odd one in its upper half
//   int8      fours, if one instruction adds up four products; else pairs, widened to 16 bits
#pragma once

#include <algorithm>
#include <vector>

#include "vector.h"

#if defined(__AVX512VNNI__) && TRANSDUCE_AVX512
#define TRANSDUCE_VNNI 1
#elif defined(__AVXVNNI__) && TRANSDUCE_AVX2
#define TRANSDUCE_VNNI 1
#elif defined(__ARM_FEATURE_DOTPROD) && defined(__aarch64__)
#define TRANSDUCE_NEON_DOT 1
#endif

namespace transduce {

// Vectors side by side in a panel, and the most rows of a product computed at once: what the registers hold.
#if TRANSDUCE_AVX512
constexpr int VECTORS = 4, MOST_ROWS = 6;
#elif TRANSDUCE_AVX2
constexpr int VECTORS = 2, MOST_ROWS = 6;
#elif defined(__aarch64__)
constexpr int VECTORS = 4, MOST_ROWS = 6;
#else
constexpr int VECTORS = 2, MOST_ROWS = 4;
#endif
constexpr int PANEL = VECTORS * LANES;

enum class Precision { FLOAT32, BF16, INT8 };

struct Float32 {
    using Stored = float;
    using Input = float;
    using Sum = Floats;
    static constexpr int GROUP = 1;
};

struct BF16 {
    using Stored = BrainFloat;
    using Input = float;
    using Sum = Floats;
    static constexpr int GROUP = 2;
};

struct Int8 {
    using Stored = int8_t;
    using Sum = Ints;
#if TRANSDUCE_VNNI  // the instruction takes unsigned weights: each is stored as w + 128
    using Input = int8_t;
    static constexpr int GROUP = 4, OFFSET = 128;
#elif TRANSDUCE_NEON_DOT
    using Input = int8_t;
    static constexpr int GROUP = 4, OFFSET = 0;
#else
    using Input = int16_t;
    static constexpr int GROUP = 2, OFFSET = 0;
#endif
};

constexpr float TINY = 1e-30f;  // a row without larger numbers becomes zeros, to keep 127 / largest finite

struct Matrix {
    int inputs = 0, columns = 0;    // columns: the outputs, padded to whole panels
    const void* panels = nullptr;   // laid out as above
    const float* scales = nullptr;  // of each column, if int8
    const float* bias = nullptr;    // of each column, or null
};

// The row of the weights that becomes a column, or -1 for padding. SwiGLU's two halves alternate vector by vector, so
// that an inner value and its gate lie in neighbouring vectors of the same panel.
inline int row_of_column(int column, int rows, bool gated) {
    if (!gated) return column < rows ? column : -1;
    const int vector = column / LANES, place = vector / 2 * LANES + column % LANES, half = rows / 2;
    return place < half ? place + vector % 2 * half : -1;
}

inline int count_columns(int rows, bool gated) {
    return static_cast<int>(round_up(gated ? 2 * round_up(rows / 2, LANES) : rows, PANEL));
}

inline BrainFloat to_brain_float(float value) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return static_cast<BrainFloat>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float largest_size(const float* values, int count) {
    Floats largest{};
    int place = 0;
    for (; place + LANES <= count; place += LANES) largest = larger(absolute(load(values + place)), largest);
    float result = largest_of(largest);
    for (; place < count; ++place) result = std::max(result, std::fabs(values[place]));
    return result;
}

inline void convert_row(const float* row, int count, float* to, float*) { std::copy(row, row + count, to); }

inline void convert_row(const float* row, int count, BrainFloat* to, float*) {
    std::transform(row, row + count, to, to_brain_float);
}

// One scale for a row: its largest weight becomes 127.
inline void convert_row(const float* row, int count, int8_t* to, float* scale) {
    const float largest = largest_size(row, count), inverse = largest > TINY ? 127.0f / largest : 0.0f;
    *scale = largest / 127.0f;
    for (int place = 0; place < count; ++place) {
        const float shifted = row[place] * inverse + ROUNDER;
        int32_t bits;
        std::memcpy(&bits, &shifted, 4);
        to[place] = static_cast<int8_t>(bits + Int8::OFFSET);
    }
}

template <class Weight>
constexpr int64_t panel_size(int inputs) {
    return round_up(inputs, Weight::GROUP) * PANEL;
}

// Pack weights (rows, inputs) into panels; scales are given only if they are int8.
template <class Weight>
void pack(const float* weights, int rows, int inputs, bool gated, typename Weight::Stored* panels, float* scales) {
    using Stored = typename Weight::Stored;
    constexpr int GROUP = Weight::GROUP;
    const int groups = static_cast<int>(round_up(inputs, GROUP)) / GROUP, columns = count_columns(rows, gated);
    const int width = groups * GROUP;
    std::vector<Stored> converted(static_cast<size_t>(width) * PANEL);
    for (int first = 0; first < columns; first += PANEL) {
        std::fill(converted.begin(), converted.end(), Stored{});
        for (int column = 0; column < PANEL; ++column) {
            const int row = row_of_column(first + column, rows, gated);
            if (row < 0) continue;
            convert_row(weights + static_cast<int64_t>(row) * inputs, inputs, &converted[column * width],
                        scales ? scales + first + column : nullptr);
        }
        Stored* panel = panels + first / PANEL * panel_size<Weight>(inputs);
        for (int group = 0; group < groups; ++group)
            for (int column = 0; column < PANEL; ++column)
                std::memcpy(panel + (group * PANEL + column) * GROUP, &converted[column * width + group * GROUP],
                            GROUP * sizeof(Stored));
    }
}

}  // namespace transduce
