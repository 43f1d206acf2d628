// Sentences join: the encoder (section 3.1), and the keys and values that the decoder will attend to.
#pragma once

#include "lines.h"

namespace transduce {

constexpr int TOKENS_TOGETHER = 1024;  // the most tokens of sentences encoded together: what the cache can hold

inline void Lines::admit(int count, const int32_t* slots, const int32_t* tokens, const int32_t* offsets) {
    for (int first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && offsets[end + 1] - offsets[first] <= TOKENS_TOGETHER;) ++end;
        rows.reserve(offsets[end] - offsets[first]);
        team.run([&](Worker worker) {
            if (half)
                encode<Half>(worker, end - first, slots + first, tokens, offsets + first);
            else
                encode<float>(worker, end - first, slots + first, tokens, offsets + first);
        });
        for (int sentence = first; sentence < end; ++sentence)
            states[slots[sentence]] = {offsets[sentence + 1] - offsets[sentence], 0, 0, 0};
    }
}

template <class Stored>
void Lines::encode(Worker worker, int count, const int32_t* slots, const int32_t* tokens, const int32_t* offsets) {
    const int first_token = offsets[0], d_model = sizes.d_model;
    Pass pass(engine, rows, offsets[count] - first_token, worker);
    const auto sentence_of = [&](int token) {
        return static_cast<int>(std::upper_bound(offsets, offsets + count, token) - offsets) - 1;
    };
    const auto [first, end] = worker.share(pass.count);
    for (int row = first; row < end; ++row) {
        const int token = first_token + row, position = token - offsets[sentence_of(token)];
        embed(engine.source_embedding + static_cast<int64_t>(tokens[token]) * d_model,
              sizes.rotary ? nullptr : positions.source + static_cast<int64_t>(position) * d_model, d_model,
              rows.x.at(row * rows.model_width));
    }
    const auto [first_head, end_head] = worker.share(count * sizes.heads);
    for (const EncoderLayer& layer : engine.encoder) {
        pass.multiply(layer.self.query_key_value, pass.enter(layer.self.norm),
                      {rows.projected.at(), rows.projection_width});
        worker.meet();
        for (int item = first_head; item < end_head; ++item) {
            const int sentence = item / sizes.heads, row = offsets[sentence] - first_token;
            attend_source(worker, item % sizes.heads, row, offsets[sentence + 1] - offsets[sentence]);
        }
        pass.combine(layer.self);
        pass.feed_forward(layer.feed_forward);
    }
    const Inputs memory = sizes.pre_norm ? pass.normed_inputs(engine.encoder_norm) : pass.enter({});
    for (int number = 0; number < sizes.decoder_layers; ++number) {
        pass.multiply(engine.decoder[number].cross.key_value, memory, {rows.projected.at(), rows.projection_width});
        worker.meet();
        for (int item = first_head; item < end_head; ++item) {
            const int sentence = item / sizes.heads, row = offsets[sentence] - first_token;
            keep_memory<Stored>(slots[sentence], number, item % sizes.heads,
                                rows.projected.at(row * rows.projection_width),
                                offsets[sentence + 1] - offsets[sentence]);
        }
        worker.meet();
    }
}

// Self-attention of one head over a sentence, whose first row is given.
inline void Lines::attend_source(const Worker& worker, int head, int first_row, int length) {
    const int d_k = sizes.d_k, d_v = sizes.d_v, width = sizes.heads * d_k;
    float* scores = room_of(worker);
    float* keys = scores + QUERY_ROWS * source_room;
    float* values = keys + source_room * d_k;
    for (int place = 0; place < length; ++place) {
        float* query = rows.projected.at((first_row + place) * rows.projection_width) + head * d_k;
        float* key = query + width;
        if (sizes.rotary) {
            const int64_t turn = static_cast<int64_t>(place) * (d_k / 2);
            rotate(query, positions.cosines + turn, positions.sines + turn, d_k);
            rotate(key, positions.cosines + turn, positions.sines + turn, d_k);
        }
        place_key(keys, place, key, d_k);
        place_row(values + place * value_width, query + 2 * width - head * (d_k - d_v), d_v);
    }
    const SharedKeys<float> memory{keys, values, length, d_k, d_v, static_cast<int>(value_width)};
    attend_shared(memory, rows.projected.at(first_row * rows.projection_width) + head * d_k, rows.projection_width,
                  length, sizes.scale, scores, rows.heads.at(first_row * rows.head_width) + head * d_v,
                  rows.head_width);
}

// Store the keys and values of one decoder layer's head, from rows (length, heads · d_k + heads · d_v).
template <class Stored>
void Lines::keep_memory(int slot, int layer, int head, const float* projected, int length) {
    Stored* keys = of_head<Stored>(memory_keys, slot, layer, head, source_room * sizes.d_k);
    Stored* values = of_head<Stored>(memory_values, slot, layer, head, source_room * value_width);
    for (int place = 0; place < length; ++place) {
        const float* row = projected + place * rows.projection_width;
        place_key(keys, place, row + head * sizes.d_k, sizes.d_k);
        place_row(values + place * value_width, row + sizes.heads * sizes.d_k + head * sizes.d_v, sizes.d_v);
    }
}

}  // namespace transduce
