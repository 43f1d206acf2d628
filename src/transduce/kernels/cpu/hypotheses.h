// Several steps of beam search without Python: what decoding/beams.py does with tensors, on the same memory.
#pragma once

#include "decode.h"
#include "trees.h"

namespace transduce {

// The tensors of `Beams`, as they lie in memory; steps is the most tokens of a target plus one.
struct Hypotheses {
    int32_t slots, steps, candidates, n_best, min_tokens, until_full, begin_token, end_token;
    float* scores;               // (slots, beam)
    int32_t* next;               // (slots, beam)
    int64_t* parents;            // (slots, beam)
    int32_t* said;               // (slots, steps, beam)
    int64_t* came_from;          // (slots, steps, beam)
    float* sums;                 // (slots, steps, beam)
    int64_t *length, *limit;     // (slots)
    uint8_t* done;               // (slots)
    float *ended, *ended_sums;   // (slots, beam), the best first
    int64_t *ended_line, *ended_length;
    const float* penalty;        // (steps + 1)
    float* logits;               // (slots · beam, stride)
    int64_t stride;
};

// Insert the hypothesis that ends a line now among those that have ended, if it is good enough.
inline void end_line(const Hypotheses& all, int64_t slot, int beam, float sum, int64_t line) {
    const int64_t first = slot * beam, now = all.length[slot] + 1;
    const float score = sum / all.penalty[now];
    if (!(score > all.ended[first + beam - 1])) return;
    int place = beam - 1;
    for (; place > 0 && all.ended[first + place - 1] < score; --place) {
        all.ended[first + place] = all.ended[first + place - 1];
        all.ended_sums[first + place] = all.ended_sums[first + place - 1];
        all.ended_line[first + place] = all.ended_line[first + place - 1];
        all.ended_length[first + place] = all.ended_length[first + place - 1];
    }
    all.ended[first + place] = score;
    all.ended_sums[first + place] = sum;
    all.ended_line[first + place] = line;
    all.ended_length[first + place] = now;
}

// Whether a slot's search is over: enough is found that no open line can beat, or none can go on.
inline bool is_done(const Hypotheses& all, int64_t slot, int beam) {
    const float best = *std::max_element(all.scores + slot * beam, all.scores + (slot + 1) * beam);
    const float* ended = all.ended + slot * beam;
    const bool found = all.until_full ? ended[beam - 1] > NONE
                                      : ended[all.n_best - 1] >= best / all.penalty[all.limit[slot]];
    return found || all.length[slot] >= all.limit[slot] || best == NONE;
}

// Let the best candidates of a slot's lines (beam, candidates) end or go on; best, places: room for 2 · beam of them.
inline void choose_lines(const Hypotheses& all, int64_t slot, int beam, const float* values, const int32_t* tokens,
                         float* best, int32_t* places) {
    const int many = 2 * beam;
    std::fill_n(best, many, NONE);
    std::fill_n(places, many, 0);
    Ranking ranking(best, places, many);
    for (int place = 0; place < beam * all.candidates; ++place) {
        const int32_t token = tokens[place];
        const bool never = token == 0 || token == all.begin_token ||
                           (token == all.end_token && all.length[slot] < all.min_tokens);
        const float total = never ? NONE : values[place] + all.scores[slot * beam + place / all.candidates];
        if (ranking.has_room() || total > ranking.least()) ranking.insert(total, place);
    }
    const int64_t step = (slot * all.steps + all.length[slot]) * beam;
    std::vector<float> scores(beam, NONE);
    int going = 0;
    for (int rank = 0; rank < many; ++rank) {
        const int32_t token = tokens[places[rank]];
        const int64_t line = places[rank] / all.candidates;
        if (token == all.end_token) {
            // An end counts only among the first `beam`, and not if it may not be said yet.
            if (rank < beam && best[rank] > NONE) end_line(all, slot, beam, best[rank], line);
        } else if (going < beam) {
            scores[going] = all.sums[step + going] = best[rank];
            all.came_from[step + going] = all.parents[slot * beam + going] = line;
            all.said[step + going] = all.next[slot * beam + going] = token;
            ++going;
        }
    }
    std::copy(scores.begin(), scores.end(), all.scores + slot * beam);
    ++all.length[slot];
    all.done[slot] = is_done(all, slot, beam);
}

inline void Lines::run(const Hypotheses& all, const Trees* trees, int steps) {
    const int beam = capacity.beam;
    std::vector<int32_t> slots, tokens, parents, found, places(2 * beam);
    std::vector<float> values, best_values(2 * beam);
    std::vector<double> normalisers;
    for (int step = 0; step < steps; ++step) {
        slots.clear();
        tokens.clear();
        parents.clear();
        for (int slot = 0; slot < all.slots; ++slot) {
            if (all.done[slot]) continue;
            slots.push_back(slot);
            for (int line = slot * beam; line < (slot + 1) * beam; ++line) {
                tokens.push_back(all.next[line]);
                parents.push_back(static_cast<int32_t>(all.parents[line]));
            }
        }
        if (slots.empty()) return;
        const int count = static_cast<int>(slots.size()), rows = count * beam;
        values.resize(static_cast<size_t>(rows) * all.candidates);
        found.resize(values.size());
        normalisers.resize(rows);
        advance(count, slots.data(), tokens.data(), parents.data(), all.logits, all.stride);
        // For trees, only the normalisers are needed.
        best({all.logits, all.stride, rows, sizes.vocabulary, trees ? 0 : all.candidates, nullptr, 0, true, false,
              normalisers.data(), values.data(), found.data()});
        for (int place = 0; place < count; ++place) {
            const int64_t slot = slots[place], first = static_cast<int64_t>(place) * beam * all.candidates;
            for (int line = 0; trees && line < beam; ++line) {
                const int64_t row = static_cast<int64_t>(place) * beam + line, at = row * all.candidates;
                choose_symbols(*trees, slot, slot * beam + line, all.logits + row * all.stride, normalisers[row],
                               all.candidates, values.data() + at, found.data() + at);
            }
            choose_lines(all, slot, beam, values.data() + first, found.data() + first, best_values.data(),
                         places.data());
            if (trees) grow(*trees, slot, beam, all.next + slot * beam, all.parents + slot * beam);
        }
    }
}

}  // namespace transduce
