// What is done to each row by itself: embedding, norm, quantisation.
#pragma once

#include "product.h"

namespace transduce {

struct Norm {
    const float* weight;
    const float* bias;
    float epsilon;
};

// Embeddings times sqrt(d_model), plus the position's vector if there is one (sections 3.4, 3.5).
inline void embed(const float* embedding, const float* position, int d_model, float* row) {
    const float factor = std::sqrt(static_cast<float>(d_model));
    for (int place = 0; place < d_model; ++place) {
        row[place] = embedding[place] * factor;
        if (position) row[place] += position[place];
    }
}

// Layer norm of the first `width` numbers of a row that is padded with zeros to whole vectors; the padding stays 0.
inline void normalise(const float* row, const Norm& norm, int width, float* result) {
    Floats sum{};
    for (int place = 0; place < width; place += LANES) sum += load(row + place);
    const float mean = sum_of(sum) / static_cast<float>(width);
    Floats squares{};
    int place = 0;
    for (; place + LANES <= width; place += LANES) {
        const Floats distance = load(row + place) - mean;
        squares = fma(distance, distance, squares);
    }
    float square = sum_of(squares);
    for (; place < width; ++place) square += (row[place] - mean) * (row[place] - mean);
    const float factor = 1.0f / std::sqrt(square / static_cast<float>(width) + norm.epsilon);
    for (place = 0; place + LANES <= width; place += LANES) {
        const Floats distance = (load(row + place) - mean) * factor;
        store(result + place, fma(distance, load(norm.weight + place), load(norm.bias + place)));
    }
    for (; place < width; ++place)
        result[place] = (row[place] - mean) * factor * norm.weight[place] + norm.bias[place];
}

typedef Int8::Input InputInts __attribute__((vector_size(LANES * sizeof(Int8::Input)), aligned(1), may_alias));

// Store integers, which must be small enough, as inputs of products.
inline void store_inputs(Int8::Input* to, Ints integers) {
#if TRANSDUCE_VNNI && TRANSDUCE_AVX512
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(__m512i(integers)));
#elif TRANSDUCE_AVX512
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(__m512i(integers)));
#else
    *reinterpret_cast<InputInts*>(to) = __builtin_convertvector(integers, InputInts);
#endif
}

// Quantise a row, padded with zeros to whole vectors, to integers from -127 to 127 with one scale, and sum these.
inline void quantise(const float* row, int width, Int8::Input* result, float* scale, int32_t* sum) {
    Floats sizes{};
    for (int place = 0; place < width; place += LANES) sizes = larger(absolute(load(row + place)), sizes);
    const float largest = largest_of(sizes), inverse = largest > TINY ? 127.0f / largest : 0.0f;
    Ints sums{};
    for (int place = 0; place < width; place += LANES) {
        const Ints integers = nearest(load(row + place) * inverse);
        sums += integers;
        store_inputs(result + place, integers);
    }
    *scale = largest / 127.0f;
    *sum = 0;
    for (int lane = 0; lane < LANES; ++lane) *sum += sums[lane];
}

}  // namespace transduce
