// Sentences in slots, each with as many lines (hypotheses) as the beam is wide, decoded one token at a time.
//
// Keys and values of the decoder's self-attention are written once, at entry (position, line), and never moved: each
// line knows the entries of its own past. Those of the encoder's output are shared by a slot's lines.
#pragma once

#include <memory>

#include "best.h"
#include "stack.h"

namespace transduce {

struct Hypotheses;
struct Trees;

struct Capacity {
    int32_t slots, beam, source, target, threads;
};

// Vectors (positions, d_model) that are added to the embeddings, or cosines and sines (positions, d_k / 2).
struct Positions {
    const float* source;
    const float* target;
    const float* cosines;
    const float* sines;
};

class Lines {
   public:
    Lines(const Engine& engine, const Capacity& capacity, const Positions& positions)
        : engine(engine),
          sizes(engine.sizes),
          capacity(capacity),
          positions(positions),
          rows(engine.sizes),
          team(capacity.threads),
          key_width(round_up(sizes.d_k, LANES)),
          value_width(round_up(sizes.d_v, LANES)),
          source_room(round_up(capacity.source, LANES)),
          entries(static_cast<int64_t>(capacity.target) * capacity.beam),
          half(sizes.precision != Precision::FLOAT32) {
        rows.reserve(static_cast<int64_t>(capacity.slots) * capacity.beam);
        const int64_t heads = static_cast<int64_t>(capacity.slots) * sizes.decoder_layers * sizes.heads;
        const int64_t bytes = half ? sizeof(Half) : sizeof(float);
        own_keys.reserve(heads * entries * key_width * bytes);
        own_values.reserve(heads * entries * value_width * bytes);
        memory_keys.reserve(heads * source_room * sizes.d_k * bytes);
        memory_values.reserve(heads * source_room * value_width * bytes);
        for (Array<int32_t>& past : pasts) past.reserve(capacity.slots * entries);
        states.resize(capacity.slots);
        summaries.reserve(static_cast<int64_t>(capacity.slots) * capacity.beam * (engine.output.columns / PANEL));
        room_width = QUERY_ROWS * round_up(std::max(capacity.source, capacity.target), LANES) + key_width;
        const int64_t encoder_room = source_room * (sizes.d_k + value_width);
        room.reserve(capacity.threads * (room_width += encoder_room));
    }

    // Whether these make a step: each slot at most once, with a sentence and room; tokens and parents that exist.
    bool allows(int count, const int32_t* slots, const int32_t* tokens, const int32_t* parents);
    void admit(int count, const int32_t* slots, const int32_t* tokens, const int32_t* offsets);
    void advance(int count, const int32_t* slots, const int32_t* tokens, const int32_t* parents, float* logits,
                 int64_t stride);

    // Continue, by at most so many steps, the hypotheses that are not done; as trees, if these are given.
    void run(const Hypotheses& all, const Trees* trees, int steps);

    void best(const Choices& choices) {
        const int64_t panels = count_columns(choices.vocabulary, false) / PANEL;
        team.run([&](Worker worker) {
            std::vector<Summary> made(choices.summed_up ? 0 : panels);
            const auto [first, end] = worker.share(choices.rows);
            for (int row = first; row < end; ++row)
                choose(choices, row, choices.summed_up ? summaries.at(row * panels) : made.data());
        });
    }

   private:
    struct State {
        int source = 0, position = 0;  // tokens of the source, 0 without a sentence; target tokens so far
        int past = 0;                  // which of the two `pasts` holds the entries of its lines
        int64_t asked = 0;             // the last call of `allows` that named it
    };

    // Where the keys or values of a slot's head begin, if each head has `numbers` of them.
    template <class Stored>
    Stored* of_head(const Memory& memory, int slot, int layer, int head, int64_t numbers) const {
        const int64_t place = (static_cast<int64_t>(slot) * sizes.decoder_layers + layer) * sizes.heads + head;
        return memory.at<Stored>(place * numbers);
    }

    int32_t* past_of(int slot, int line, int which) const {
        return pasts[which].at(slot * entries + static_cast<int64_t>(line) * capacity.target);
    }

    template <class Stored>
    void encode(Worker worker, int count, const int32_t* slots, const int32_t* tokens, const int32_t* offsets);
    template <class Stored>
    void decode(Worker worker, int count, const int32_t* slots, const int32_t* tokens, float* logits, int64_t stride);

    void attend_source(const Worker& worker, int head, int first_row, int length);
    template <class Stored>
    void keep_memory(int slot, int layer, int head, const float* projected, int length);
    template <class Stored>
    void attend_own(const Worker& worker, int slot, int layer, int head, int first_row);
    template <class Stored>
    void attend_memory(const Worker& worker, int slot, int layer, int head, int first_row);

    void follow_parents(int slot, const int32_t* parents);
    float* room_of(const Worker& worker) const { return room.at(worker.number * room_width); }

    const Engine& engine;
    const Sizes& sizes;
    const Capacity capacity;
    const Positions positions;
    Rows rows;
    Team team;
    const int64_t key_width, value_width, source_room, entries;
    const bool half;          // whether keys and values are kept in half precision
    Memory own_keys;          // (slots, layers, heads, target, beam, key_width)
    Memory own_values;        // (slots, layers, heads, target, beam, value_width)
    Memory memory_keys;       // (slots, layers, heads, source / LANES, d_k, LANES)
    Memory memory_values;     // (slots, layers, heads, source, value_width)
    Array<int32_t> pasts[2];  // (slots, beam, target): each line's entry (position · beam + line) at each position
    std::vector<State> states;
    int64_t asked = 0;         // calls of `allows` so far
    Array<Summary> summaries;  // (lines, panels) of the last logits
    Array<float> room;  // of each worker: scores, a query, and in the encoder a head's keys and values
    int64_t room_width = 0;
};

}  // namespace transduce
