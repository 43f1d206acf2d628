// The most probable tokens of a row of logits.
#pragma once

#include "product.h"

namespace transduce {

struct Choices {
    const float* logits;  // (rows, stride)
    int64_t stride;
    int32_t rows, vocabulary, count;  // count: how many tokens of each row; 0: only the normaliser
    const int32_t* banned;            // tokens that count as impossible when tokens are chosen
    int32_t banned_count;
    int32_t summed_up;   // whether these are the logits that `advance` made and summarised
    int32_t normalised;  // whether the normaliser is given; else it is computed
    double* normaliser;  // (rows): the logarithm of the sum of e^logit
    float* values;       // (rows, count): logits less the normaliser, the largest first
    int32_t* tokens;     // (rows, count)
};

// The logarithm of the sum of e^logit, from the summaries of all panels.
inline double normaliser_of(const Summary* summaries, int panels) {
    float top = NONE;
    for (int panel = 0; panel < panels; ++panel) top = std::max(top, summaries[panel].largest);
    if (top == NONE) return NONE;
    double sum = 0;
    for (int first = 0; first < panels; first += LANES) {
        Floats largest = broadcast(NONE), sums{};
        for (int lane = 0; lane < std::min(LANES, panels - first); ++lane) {
            largest[lane] = summaries[first + lane].largest;
            sums[lane] = summaries[first + lane].sum;
        }
        sum += sum_of(exponential(largest - top) * sums);
    }
    return top + std::log(sum);
}

// The tokens found so far, the most probable first; of equal ones, the one inserted first.
class Ranking {
   public:
    Ranking(float* values, int32_t* tokens, int room) : values_(values), tokens_(tokens), room_(room) {}

    bool has_room() const { return count_ < room_; }
    float least() const { return values_[room_ - 1]; }
    int count() const { return count_; }

    // Call only with a value larger than the least, or while there is room.
    void insert(float value, int32_t token) {
        int place = has_room() ? count_++ : room_ - 1;
        for (; place > 0 && values_[place - 1] < value; --place) {
            values_[place] = values_[place - 1];
            tokens_[place] = tokens_[place - 1];
        }
        values_[place] = value;
        tokens_[place] = token;
    }

   private:
    float* values_;
    int32_t* tokens_;
    const int room_;
    int count_ = 0;
};

// Rank the best tokens whose logits are not below a bound. Return their number: less than asked for if it is too high.
inline int rank(const Choices& choices, const float* row, const Summary* summaries, int panels, float bound,
                Ranking ranking) {
    const int32_t* banned_end = choices.banned + choices.banned_count;
    const auto is_wanted = [&](float value) { return ranking.has_room() ? value >= bound : value > ranking.least(); };
    for (int panel = 0; panel < panels; ++panel) {
        if (!is_wanted(summaries[panel].largest)) continue;
        const int end = std::min((panel + 1) * PANEL, choices.vocabulary);
        for (int token = panel * PANEL; token < end; ++token) {
            if (!is_wanted(row[token])) continue;
            const bool banned = std::find(choices.banned, banned_end, token) != banned_end;
            const float value = banned ? NONE : row[token];
            if (is_wanted(value)) ranking.insert(value, token);
        }
    }
    return ranking.count();
}

// Find one row's normaliser and most probable tokens, by its summaries (panels), which are made first if need be.
inline void choose(const Choices& choices, int row_number, Summary* summaries) {
    const float* row = choices.logits + row_number * choices.stride;
    const int vocabulary = choices.vocabulary, panels = (vocabulary + PANEL - 1) / PANEL;
    if (!choices.summed_up)
        for (int panel = 0; panel < panels; ++panel)
            summaries[panel] = summarise(row + panel * PANEL, std::min(PANEL, vocabulary - panel * PANEL));
    double& normaliser = choices.normaliser[row_number];
    if (!choices.normalised) normaliser = normaliser_of(summaries, panels);
    if (choices.count == 0) return;

    float* values = choices.values + static_cast<int64_t>(row_number) * choices.count;
    int32_t* tokens = choices.tokens + static_cast<int64_t>(row_number) * choices.count;
    std::fill_n(values, choices.count, NONE);  // these remain if too many logits are NaN
    std::fill_n(tokens, choices.count, 0);
    // Each panel's largest is a candidate unless banned, so the least of the `count` largest of them is a bound.
    Ranking largest(values, tokens, choices.count);
    for (int panel = 0; panel < panels; ++panel)
        if (largest.has_room() || summaries[panel].largest > largest.least())
            largest.insert(summaries[panel].largest, panel);
    const float bound = largest.has_room() ? NONE : largest.least();
    if (rank(choices, row, summaries, panels, bound, {values, tokens, choices.count}) < choices.count)
        rank(choices, row, summaries, panels, NONE, {values, tokens, choices.count});
    for (int place = 0; place < choices.count; ++place)
        if (values[place] != NONE) values[place] = static_cast<float>(values[place] - normaliser);
}

}  // namespace transduce
