// Vectors of floats and integers, as wide as the machine has them, and the functions on them that the model needs.
//
// Everything uses the vector types of GCC and clang, and intrinsics only for operations that these types lack. The
// compiler never fuses products and sums (-ffp-contract=off): where they are to be one operation, the code says `fma`,
// so that a result does not depend on how a loop was cut.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TRANSDUCE_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TRANSDUCE_AVX2 1
#endif

namespace transduce {

#if TRANSDUCE_AVX512
constexpr int LANES = 16;
#elif TRANSDUCE_AVX2
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef float FloatsAnywhere __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t WordsAnywhere __attribute__((vector_size(LANES * 4), aligned(1), may_alias));

using Half = uint16_t;        // the bits of a number of half precision
using BrainFloat = uint16_t;  // the upper half of the bits of a float

constexpr float NONE = -std::numeric_limits<float>::infinity();

constexpr int64_t round_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

inline Floats load(const float* from) { return *reinterpret_cast<const FloatsAnywhere*>(from); }
inline void store(float* to, Floats values) { *reinterpret_cast<FloatsAnywhere*>(to) = values; }
inline Words load_words(const void* from) { return *static_cast<const WordsAnywhere*>(from); }
inline Floats broadcast(float value) { return value - Floats{}; }  // x - 0 is x, for all x
inline Floats as_floats(Words bits) { return reinterpret_cast<Floats>(bits); }
inline Words as_words(Floats values) { return reinterpret_cast<Words>(values); }

// The larger or the smaller of each pair; b if either is NaN.
inline Floats larger(Floats a, Floats b) {
#if TRANSDUCE_AVX512
    return _mm512_max_ps(a, b);
#elif TRANSDUCE_AVX2
    return _mm256_max_ps(a, b);
#else
    return a > b ? a : b;
#endif
}

inline Floats smaller(Floats a, Floats b) {
#if TRANSDUCE_AVX512
    return _mm512_min_ps(a, b);
#elif TRANSDUCE_AVX2
    return _mm256_min_ps(a, b);
#else
    return a < b ? a : b;
#endif
}

inline Floats absolute(Floats a) { return as_floats(as_words(a) & 0x7fffffffu); }

inline void store_some(float* to, Floats values, int count) { std::memcpy(to, &values, count * sizeof(float)); }

// a · b + c, rounded once where the machine can.
inline Floats fma(Floats a, Floats b, Floats c) {
#if TRANSDUCE_AVX512
    return _mm512_fmadd_ps(a, b, c);
#elif TRANSDUCE_AVX2
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

// ---- Half precision

inline float half_to_float(Half half) {
    uint32_t bits = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    value *= 0x1p112f;  // the exponent counts from 15 in a half, from 127 in a float
    std::memcpy(&bits, &value, 4);
    bits |= sign;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline Half float_to_half(float value) {
    uint32_t bits, half;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits >= 0x38800000u) {  // 2^-14, the smallest normal half
        half = (bits + 0xfffu + (bits >> 13 & 1) - (112u << 23)) >> 13;
    } else {
        std::memcpy(&value, &bits, 4);
        value += 0.5f;  // its last bit is worth 2^-24, like that of the smallest halves
        std::memcpy(&half, &value, 4);
        half -= 0x3f000000u;
    }
    return static_cast<Half>(sign | half);
}

inline Floats load(const Half* from) {
#if TRANSDUCE_AVX512
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif TRANSDUCE_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    Floats values{};
    for (int lane = 0; lane < LANES; ++lane) values[lane] = half_to_float(from[lane]);
    return values;
#endif
}

// Store in half precision; numbers too large for it become the largest that it has.
inline void store(Half* to, Floats values) {
    values = larger(broadcast(-65504.0f), smaller(broadcast(65504.0f), values));
#if TRANSDUCE_AVX512
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
#elif TRANSDUCE_AVX2
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int lane = 0; lane < LANES; ++lane) to[lane] = float_to_half(values[lane]);
#endif
}

// ---- Across the lanes of a vector

using LaneNumbers = std::make_integer_sequence<int, LANES>;

// Lane i of the result is lane PLACES[i] of a and b in a row.
template <int... PLACES>
inline Floats shuffle(Floats a, Floats b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, PLACES...);
#else
    return __builtin_shuffle(a, b, Ints{PLACES...});
#endif
}

// Lane i of the result is a[i] + a[i ^ WIDTH] where bit WIDTH of i is 0, and the same of b where it is 1.
template <int WIDTH, int... LANE>
inline Floats fold(Floats a, Floats b, std::integer_sequence<int, LANE...>) {
    const Floats kept = shuffle<(LANE & WIDTH ? LANE + LANES : LANE)...>(a, b);
    return kept + shuffle<(LANE & WIDTH ? (LANE ^ WIDTH) + LANES : LANE ^ WIDTH)...>(a, b);
}

// Lane i of the result is the sum over all lanes of vectors[i]; its order is the same for every i.
inline Floats sums_of(Floats (&vectors)[LANES]) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; ++i)
        vectors[i] = fold<LANES / 2>(vectors[i], vectors[i + LANES / 2], LaneNumbers{});
#pragma GCC unroll 4
    for (int i = 0; i < LANES / 4; ++i)
        vectors[i] = fold<LANES / 4>(vectors[i], vectors[i + LANES / 4], LaneNumbers{});
    if constexpr (LANES >= 8)
        for (int i = 0; i < LANES / 8; ++i)
            vectors[i] = fold<LANES / 8>(vectors[i], vectors[i + LANES / 8], LaneNumbers{});
    if constexpr (LANES >= 16) vectors[0] = fold<1>(vectors[0], vectors[1], LaneNumbers{});
    return vectors[0];
}

inline float sum_of(Floats values) {
    if constexpr (LANES >= 16) values = fold<LANES / 2>(values, values, LaneNumbers{});
    if constexpr (LANES >= 8) values = fold<4>(values, values, LaneNumbers{});
    values = fold<2>(values, values, LaneNumbers{});
    return values[0] + values[1];
}

template <int WIDTH, int... LANE>
inline Floats swapped(Floats values, std::integer_sequence<int, LANE...>) {
    return shuffle<(LANE ^ WIDTH)...>(values, values);
}

inline float largest_of(Floats values) {
    if constexpr (LANES >= 16) values = larger(values, swapped<LANES / 2>(values, LaneNumbers{}));
    if constexpr (LANES >= 8) values = larger(values, swapped<4>(values, LaneNumbers{}));
    values = larger(values, swapped<2>(values, LaneNumbers{}));
    return values[0] > values[1] ? values[0] : values[1];
}

// ---- Functions

constexpr float ROUNDER = 0x1.8p23f;  // added to a small number, it leaves the nearest integer in the lowest bits

inline Ints nearest(Floats values) {
    return reinterpret_cast<Ints>(as_words(values + ROUNDER) - as_words(broadcast(ROUNDER)));
}

// e^x to about one unit in the last place, for x clamped to -87.3 (e^x is then negligible in our sums) … 88.
inline Floats exponential(Floats x) {
    const Floats kept = larger(smaller(x, broadcast(88.0f)), broadcast(-87.3f));
    const Floats shifted = fma(kept, broadcast(0x1.715476p+0f), broadcast(ROUNDER));  // x / ln 2, rounded, in low bits
    const Floats power = shifted - ROUNDER;
    Floats rest = fma(power, broadcast(-0x1.62e400p-1f), kept);  // ln 2 in two parts
    rest = fma(power, broadcast(-0x1.7f7d1cp-20f), rest);
    Floats series = broadcast(1.9875691500e-4f);
    series = fma(series, rest, broadcast(1.3981999507e-3f));
    series = fma(series, rest, broadcast(8.3334519073e-3f));
    series = fma(series, rest, broadcast(4.1665795894e-2f));
    series = fma(series, rest, broadcast(1.6666665459e-1f));
    series = fma(series, rest, broadcast(5.0000001201e-1f));
    series = fma(series, rest * rest, rest + 1.0f);
    return as_floats(as_words(series) + (as_words(shifted) << 23));
}

// The error function, after N. Juffa: a polynomial near 0, 1 - e^polynomial elsewhere.
inline Floats error_function(Floats x) {
    const Floats size = absolute(x), square = x * x;
    Floats far = fma(broadcast(-1.72853470e-5f), size, broadcast(3.83197126e-4f));
    far = fma(far, square, fma(broadcast(-3.88396438e-3f), size, broadcast(2.42546219e-2f)));
    far = fma(far, size, broadcast(-1.06777877e-1f));
    far = fma(far, size, broadcast(-6.34846687e-1f));
    far = fma(far, size, broadcast(-1.28717512e-1f));
    far = 1.0f - exponential(fma(far, size, -size));
    far = as_floats((as_words(far) & 0x7fffffffu) | (as_words(x) & 0x80000000u));
    Floats near = broadcast(-5.96761703e-4f);
    near = fma(near, square, broadcast(4.99119423e-3f));
    near = fma(near, square, broadcast(-2.67681349e-2f));
    near = fma(near, square, broadcast(1.12819925e-1f));
    near = fma(near, square, broadcast(-3.76125336e-1f));
    near = fma(near, square, broadcast(1.28379166e-1f));
    near = fma(near, x, x);
    return size > 0.927734375f ? far : near;
}

inline Floats relu(Floats x) { return larger(x, Floats{}); }
inline Floats gelu(Floats x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678f)); }
inline Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

}  // namespace transduce
