// What trees in brackets may say next, and their state so far: what decoding/brackets.py does with tensors, on the same
// memory.
#pragma once

#include "best.h"

namespace transduce {

// The tensors of `OpenTrees`, as they lie in memory.
struct Trees {
    int32_t many, to_a_word, labelled;
    int32_t steps, deepest;                  // the most tokens of a tree plus one; the height of the stack
    float word_share;                        // the share of a word's log-probability that counts
    const int64_t *symbols, *kinds;          // (many); kinds: 0 opens, 1 closes, 2 stands for a word, 3 ends
    const uint8_t *opens, *closes, *leaves;  // (vocabulary)
    const int64_t* labels;                   // (vocabulary)
    int64_t* words;                          // (slots, beam)
    uint8_t* due;                            // (slots, beam)
    const int64_t* following;                // (slots, steps)
    int64_t* depth;                          // (slots, beam)
    uint8_t* empty;                          // (slots, beam)
    int64_t* room;                           // (slots)
    int64_t* stack;                          // (slots, beam, deepest)
};

// Find the most probable of the tokens that a line (slot · beam + its place) may say next.
inline void choose_symbols(const Trees& trees, int64_t slot, int64_t line, const float* logits, double normaliser,
                           int count, float* values, int32_t* tokens) {
    std::fill_n(values, count, NONE);
    std::fill_n(tokens, count, 0);
    Ranking ranking(values, tokens, count);
    const auto offer = [&](int64_t token) {
        if (ranking.has_room() || logits[token] > ranking.least())
            ranking.insert(logits[token], static_cast<int32_t>(token));
    };
    const int64_t words = trees.words[line], depth = trees.depth[line];
    const bool due = trees.due[line];
    if (due) {
        offer(trees.following[slot * trees.steps + words]);
    } else {
        // An opening bracket needs room for itself and its closing one, besides the end.
        const bool may_open = words > 0 && trees.to_a_word * words + depth + 3 <= trees.room[slot];
        const bool may[] = {may_open, depth > 0 && !trees.empty[line], words > 0, words == 0 && depth == 0};
        const bool labelled = trees.labelled && depth > 0;
        const int64_t innermost = labelled ? trees.stack[line * trees.deepest + depth - 1] : 0;
        for (int place = 0; place < trees.many; ++place) {
            const int64_t token = trees.symbols[place], kind = trees.kinds[place];
            if (!may[kind]) continue;
            if (kind == 1 && innermost != 0 && innermost != trees.labels[token]) continue;
            offer(token);
        }
    }
    const double share = due ? trees.word_share : 1;
    for (int place = 0; place < ranking.count(); ++place)
        values[place] = static_cast<float>(share * (values[place] - normaliser));
}

// Let each line of a slot say a token, continuing a parent line.
inline void grow(const Trees& trees, int64_t slot, int beam, const int32_t* tokens, const int64_t* parents) {
    const int64_t first = slot * beam;
    const auto copy = [&](const auto* all, int64_t width) {
        return std::vector(all + first * width, all + (first + beam) * width);
    };
    const auto words = copy(trees.words, 1), depth = copy(trees.depth, 1);
    const auto due = copy(trees.due, 1), empty = copy(trees.empty, 1);
    const auto stack = copy(trees.stack, trees.labelled ? trees.deepest : 0);
    for (int place = 0; place < beam; ++place) {
        const int64_t line = first + place, parent = parents[place], token = tokens[place];
        const bool opens = trees.opens[token], closes = trees.closes[token], is_leaf = trees.leaves[token];
        const bool word = trees.to_a_word > 1 ? due[parent] : is_leaf;
        trees.due[line] = trees.to_a_word > 1 && is_leaf;
        trees.words[line] = std::max<int64_t>(words[parent] - word, 0);
        trees.depth[line] = std::max<int64_t>(depth[parent] + opens - closes, 0);
        trees.empty[line] = (empty[parent] && !(word || closes)) || opens;
        if (!trees.labelled) continue;
        int64_t* open = trees.stack + line * trees.deepest;
        std::copy_n(stack.begin() + parent * trees.deepest, std::min<int64_t>(depth[parent], trees.deepest), open);
        if (opens) open[std::min<int64_t>(trees.depth[line], trees.deepest) - 1] = trees.labels[token];
    }
    --trees.room[slot];
}

}  // namespace transduce
