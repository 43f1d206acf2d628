// Attention of one head (equation 1): softmax(q · K scale) V, with sums in float32 however keys and values are stored.
#pragma once

#include <algorithm>

#include "vector.h"

namespace transduce {

// Keys that many queries share lie in blocks of LANES keys, [block][d_k][LANES]: a vector holds one number of each of
// LANES keys, so that scores need no sum across lanes. Values follow one another, each padded to whole vectors.
template <class Stored>
struct SharedKeys {
    const Stored* keys;    // (blocks, d_k, LANES)
    const Stored* values;  // (keys, value_stride)
    int count, d_k, d_v;
    int value_stride;
};

// Put one key into its block.
template <class Stored>
inline void place_key(Stored* keys, int place, const float* key, int d_k) {
    Stored* block = keys + static_cast<int64_t>(place / LANES) * d_k * LANES + place % LANES;
    for (int d = 0; d < d_k; ++d) {
        if constexpr (std::is_same_v<Stored, float>) {
            block[d * LANES] = key[d];
        } else {
            Half one[LANES];
            store(one, broadcast(key[d]));
            block[d * LANES] = one[0];
        }
    }
}

// Store numbers as whole vectors, padded with zeros.
template <class Stored>
inline void place_row(Stored* to, const float* from, int count) {
    for (int place = 0; place < count; place += LANES) {
        Floats values{};
        std::memcpy(&values, from + place, std::min(LANES, count - place) * sizeof(float));
        store(to + place, values);
    }
}

// Replace scores by e^(scale (score - the largest)) and return 1 / their sum, to which padding adds nothing.
inline float soften(float* scores, int count, float scale) {
    for (int place = count; place % LANES; ++place) scores[place] = NONE;
    Floats largest = load(scores);
    for (int place = LANES; place < count; place += LANES) largest = larger(largest, load(scores + place));
    const float top = largest_of(largest);
    Floats sum{};
    for (int place = 0; place < count; place += LANES) {
        const Floats share = exponential((load(scores + place) - top) * scale);
        store(scores + place, share);
        sum += share;
    }
    return 1.0f / sum_of(sum);
}

inline void store_head(float* to, Floats values, int count) {
    if (count >= LANES) return store(to, values);
    store_some(to, values, count);
}

// The scores of ROWS queries with BLOCKS blocks of keys.
template <int ROWS, int BLOCKS, class Stored>
inline void score_blocks(const float* queries, int64_t query_stride, const Stored* keys, int d_k, float* scores,
                         int64_t score_stride) {
    Floats sums[ROWS][BLOCKS] = {};
    for (int d = 0; d < d_k; ++d) {
        Floats key[BLOCKS];
#pragma GCC unroll 4
        for (int block = 0; block < BLOCKS; ++block) key[block] = load(keys + (block * d_k + d) * LANES);
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; ++row) {
            const Floats query = broadcast(queries[row * query_stride + d]);
#pragma GCC unroll 4
            for (int block = 0; block < BLOCKS; ++block)
                sums[row][block] = fma(query, key[block], sums[row][block]);
        }
    }
    for (int row = 0; row < ROWS; ++row)
        for (int block = 0; block < BLOCKS; ++block)
            store(scores + row * score_stride + block * LANES, sums[row][block]);
}

// Sum WIDTH vectors of the values, weighted by ROWS rows of shares.
template <int ROWS, int WIDTH, class Stored>
inline void mix_values(const float* shares, int64_t share_stride, const Stored* values, int value_stride, int count,
                       Floats (&sums)[ROWS][WIDTH]) {
    for (int key = 0; key < count; ++key, values += value_stride) {
        Floats value[WIDTH];
#pragma GCC unroll 4
        for (int vector = 0; vector < WIDTH; ++vector) value[vector] = load(values + vector * LANES);
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; ++row) {
            const Floats share = broadcast(shares[row * share_stride + key]);
#pragma GCC unroll 4
            for (int vector = 0; vector < WIDTH; ++vector)
                sums[row][vector] = fma(share, value[vector], sums[row][vector]);
        }
    }
}

template <int ROWS, int WIDTH, class Stored>
inline void mix_and_store(const SharedKeys<Stored>& memory, const float* shares, int64_t share_stride,
                          const float (&inverses)[ROWS], int first, float* outputs, int64_t output_stride) {
    Floats sums[ROWS][WIDTH] = {};
    mix_values<ROWS, WIDTH>(shares, share_stride, memory.values + first, memory.value_stride, memory.count, sums);
    for (int row = 0; row < ROWS; ++row)
        for (int vector = 0; vector < WIDTH; ++vector) {
            const int place = first + vector * LANES;
            store_head(outputs + row * output_stride + place, sums[row][vector] * inverses[row], memory.d_v - place);
        }
}

// Attend from ROWS queries (ROWS, query_stride) to shared keys; outputs (ROWS, output_stride); scores is scratch space.
template <int ROWS, class Stored>
void attend_rows(const SharedKeys<Stored>& memory, const float* queries, int64_t query_stride, float scale,
                 float* scores, float* outputs, int64_t output_stride) {
    const int64_t score_stride = round_up(memory.count, LANES);
    const int blocks = static_cast<int>(score_stride) / LANES;
    int block = 0;
    for (; block + 2 <= blocks; block += 2)
        score_blocks<ROWS, 2>(queries, query_stride, memory.keys + block * memory.d_k * LANES, memory.d_k,
                              scores + block * LANES, score_stride);
    if (block < blocks)
        score_blocks<ROWS, 1>(queries, query_stride, memory.keys + block * memory.d_k * LANES, memory.d_k,
                              scores + block * LANES, score_stride);
    float inverses[ROWS];
    for (int row = 0; row < ROWS; ++row) inverses[row] = soften(scores + row * score_stride, memory.count, scale);
    int place = 0;
    for (; memory.d_v - place > 3 * LANES; place += 4 * LANES)
        mix_and_store<ROWS, 4>(memory, scores, score_stride, inverses, place, outputs, output_stride);
    for (; place < memory.d_v; place += LANES)
        mix_and_store<ROWS, 1>(memory, scores, score_stride, inverses, place, outputs, output_stride);
}

constexpr int QUERY_ROWS = 4;  // queries that share each read of keys and values

template <class Stored>
void attend_shared(const SharedKeys<Stored>& memory, const float* queries, int64_t query_stride, int rows, float scale,
                   float* scores, float* outputs, int64_t output_stride) {
    for (int row = 0; row < rows; row += QUERY_ROWS) {
        const float* query = queries + row * query_stride;
        float* output = outputs + row * output_stride;
        switch (std::min(QUERY_ROWS, rows - row)) {
            case 1: attend_rows<1>(memory, query, query_stride, scale, scores, output, output_stride); break;
            case 2: attend_rows<2>(memory, query, query_stride, scale, scores, output, output_stride); break;
            case 3: attend_rows<3>(memory, query, query_stride, scale, scores, output, output_stride); break;
            case 4: attend_rows<4>(memory, query, query_stride, scale, scores, output, output_stride); break;
        }
    }
}

// Attend from one query to the keys and values at the given entries, in their order. An entry is a row of whole
// vectors; the query is padded with zeros behind its d_k numbers, as the keys are.
template <class Stored>
void attend_entries(const Stored* keys, int key_stride, const Stored* values, int value_stride, const int32_t* entries,
                    int count, const float* query, float scale, float* scores, float* output, int d_v) {
    for (int first = 0; first < count; first += LANES) {
        Floats sums[LANES] = {};
        for (int place = 0; place < key_stride; place += LANES) {
            const Floats part = load(query + place);
#pragma GCC unroll 16
            for (int lane = 0; lane < LANES; ++lane) {
                const int64_t entry = entries[std::min(first + lane, count - 1)];
                sums[lane] = fma(part, load(keys + entry * key_stride + place), sums[lane]);
            }
        }
        store(scores + first, sums_of(sums));
    }
    const float inverse = soften(scores, count, scale);
    const auto mix = [&](auto width, int place) {
        Floats sums[width.value] = {};
        for (int key = 0; key < count; ++key) {
            const Stored* value = values + static_cast<int64_t>(entries[key]) * value_stride + place;
            const Floats share = broadcast(scores[key]);
#pragma GCC unroll 4
            for (int vector = 0; vector < width.value; ++vector)
                sums[vector] = fma(share, load(value + vector * LANES), sums[vector]);
        }
        for (int vector = 0; vector < width.value; ++vector)
            store_head(output + place + vector * LANES, sums[vector] * inverse, d_v - place - vector * LANES);
    };
    int place = 0;
    for (; value_stride - place >= 4 * LANES; place += 4 * LANES) mix(std::integral_constant<int, 4>{}, place);
    for (; place < value_stride; place += LANES) mix(std::integral_constant<int, 1>{}, place);
}

// Turn each pair of neighbouring numbers by its position's angle (rotary positions).
inline void rotate(float* head, const float* cosines, const float* sines, int d_k) {
    for (int pair = 0; pair < d_k / 2; ++pair) {
        const float even = head[2 * pair], odd = head[2 * pair + 1];
        head[2 * pair] = even * cosines[pair] - odd * sines[pair];
        head[2 * pair + 1] = even * sines[pair] + odd * cosines[pair];
    }
}

}  // namespace transduce
