// One step of the decoder for all lines of some slots.
#pragma once

#include "lines.h"

namespace transduce {

inline bool Lines::allows(int count, const int32_t* slots, const int32_t* tokens, const int32_t* parents) {
    ++asked;
    for (int place = 0; place < count; ++place) {
        if (slots[place] < 0 || slots[place] >= capacity.slots) return false;
        State& state = states[slots[place]];
        if (state.asked == asked || state.source == 0 || state.position >= capacity.target) return false;
        state.asked = asked;
    }
    for (int row = 0; row < count * capacity.beam; ++row) {
        if (tokens[row] < 0 || tokens[row] >= sizes.vocabulary) return false;
        if (parents[row] < 0 || parents[row] >= capacity.beam) return false;
    }
    return true;
}

inline void Lines::advance(int count, const int32_t* slots, const int32_t* tokens, const int32_t* parents,
                           float* logits, int64_t stride) {
    for (int place = 0; place < count; ++place) follow_parents(slots[place], parents + place * capacity.beam);
    team.run([&](Worker worker) {
        if (half)
            decode<Half>(worker, count, slots, tokens, logits, stride);
        else
            decode<float>(worker, count, slots, tokens, logits, stride);
    });
    for (int place = 0; place < count; ++place) ++states[slots[place]].position;
}

// Give each line the past of its parent, and then its own new entry.
inline void Lines::follow_parents(int slot, const int32_t* parents) {
    State& state = states[slot];
    bool same = true;
    for (int line = 0; line < capacity.beam; ++line) same = same && parents[line] == line;
    const int old = state.past;
    if (!same) state.past = 1 - old;
    for (int line = 0; line < capacity.beam; ++line) {
        int32_t* past = past_of(slot, line, state.past);
        if (!same) std::copy_n(past_of(slot, parents[line], old), state.position, past);
        past[state.position] = state.position * capacity.beam + line;
    }
}

template <class Stored>
void Lines::decode(Worker worker, int count, const int32_t* slots, const int32_t* tokens, float* logits,
                   int64_t stride) {
    const int beam = capacity.beam, d_model = sizes.d_model;
    Pass pass(engine, rows, count * beam, worker);
    const auto [first, end] = worker.share(pass.count);
    for (int row = first; row < end; ++row) {
        const int64_t position = states[slots[row / beam]].position;
        embed(engine.target_embedding + static_cast<int64_t>(tokens[row]) * d_model,
              sizes.rotary ? nullptr : positions.target + position * d_model, d_model,
              rows.x.at(row * rows.model_width));
    }
    const Worker::Range heads = worker.share(count * sizes.heads);  // clang 15 lets no lambda capture [first, end]
    const auto each_head = [&](auto attend) {
        worker.meet();
        for (int item = heads.first; item < heads.end; ++item) {
            const int place = item / sizes.heads;
            attend(slots[place], item % sizes.heads, place * beam);
        }
    };
    for (int number = 0; number < sizes.decoder_layers; ++number) {
        const DecoderLayer& layer = engine.decoder[number];
        const Outputs projected{rows.projected.at(), rows.projection_width};
        pass.multiply(layer.self.query_key_value, pass.enter(layer.self.norm), projected);
        each_head([&](int slot, int head, int row) { attend_own<Stored>(worker, slot, number, head, row); });
        pass.combine(layer.self);
        pass.multiply(layer.cross.query, pass.enter(layer.cross.norm), projected);
        each_head([&](int slot, int head, int row) { attend_memory<Stored>(worker, slot, number, head, row); });
        pass.combine(layer.cross);
        pass.feed_forward(layer.feed_forward);
    }
    const Inputs states = sizes.pre_norm ? pass.normed_inputs(engine.decoder_norm) : pass.enter({});
    pass.multiply(engine.output, states, {logits, stride, Follow::NOTHING, nullptr, summaries.at(), sizes.vocabulary});
}

// Store the keys and values of the new tokens; then let each line attend to its own past.
template <class Stored>
void Lines::attend_own(const Worker& worker, int slot, int layer, int head, int first_row) {
    const int d_k = sizes.d_k, d_v = sizes.d_v, width = sizes.heads * d_k, position = states[slot].position;
    Stored* keys = of_head<Stored>(own_keys, slot, layer, head, entries * key_width);
    Stored* values = of_head<Stored>(own_values, slot, layer, head, entries * value_width);
    float* projected = rows.projected.at(first_row * rows.projection_width);
    for (int line = 0; line < capacity.beam; ++line) {
        float* query = projected + line * rows.projection_width + head * d_k;
        float* key = query + width;
        if (sizes.rotary) {
            const int64_t turn = static_cast<int64_t>(position) * (d_k / 2);
            rotate(query, positions.cosines + turn, positions.sines + turn, d_k);
            rotate(key, positions.cosines + turn, positions.sines + turn, d_k);
        }
        const int64_t entry = static_cast<int64_t>(position) * capacity.beam + line;
        place_row(keys + entry * key_width, key, d_k);
        place_row(values + entry * value_width, query + 2 * width - head * (d_k - d_v), d_v);
    }
    float* query = room_of(worker);
    float* scores = query + key_width;
    for (int line = 0; line < capacity.beam; ++line) {
        place_row(query, projected + line * rows.projection_width + head * d_k, d_k);
        attend_entries(keys, static_cast<int>(key_width), values, static_cast<int>(value_width),
                       past_of(slot, line, states[slot].past), position + 1, query, sizes.scale, scores,
                       rows.heads.at((first_row + line) * rows.head_width) + head * d_v, d_v);
    }
}

// Let all lines attend to the encoder's output.
template <class Stored>
void Lines::attend_memory(const Worker& worker, int slot, int layer, int head, int first_row) {
    const SharedKeys<Stored> memory{of_head<Stored>(memory_keys, slot, layer, head, source_room * sizes.d_k),
                                    of_head<Stored>(memory_values, slot, layer, head, source_room * value_width),
                                    states[slot].source,
                                    sizes.d_k,
                                    sizes.d_v,
                                    static_cast<int>(value_width)};
    attend_shared(memory, rows.projected.at(first_row * rows.projection_width) + head * sizes.d_k,
                  rows.projection_width, capacity.beam, sizes.scale, room_of(worker),
                  rows.heads.at(first_row * rows.head_width) + head * sizes.d_v, rows.head_width);
}

}  // namespace transduce
