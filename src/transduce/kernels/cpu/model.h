// The weights of a model, packed for the products, in the order in which decoding reads them.
#pragma once

#include "memory.h"
#include "rows.h"

namespace transduce {

// The settings of a model; kernels/native.py has the same fields in the same order.
struct Sizes {
    int32_t vocabulary, source_vocabulary, encoder_layers, decoder_layers;
    int32_t d_model, d_ff, heads, d_k, d_v;
    int32_t pre_norm, rotary, biases;
    Follow activation;
    Precision precision;
    float scale;  // of the scores
    float epsilon;  // of the norms
};

struct Attention {
    Matrix query_key_value, query, key_value, output;  // the first for self-attention, the next two for cross-attention
    Norm norm;
};

struct FeedForward {
    Matrix inner, outer;
    Norm norm;
};

struct EncoderLayer {
    Attention self;
    FeedForward feed_forward;
};

struct DecoderLayer {
    Attention self, cross;
    FeedForward feed_forward;
};

// Packs matrices and norms one after the other into common memory.
class Packer {
   public:
    Packer(const Sizes& sizes, Memory& weights, Array<float>& numbers)
        : sizes_(sizes), weights_(weights), numbers_(numbers) {}

    // Everything is packed twice with the same layout: first to measure it, then to fill it.
    void begin(bool fill) {
        if (fill) {
            weights_.reserve(weights_used_ + 2 * DISTANCE, true);
            numbers_.reserve(numbers_used_);
        }
        fill_ = fill;
        weights_used_ = numbers_used_ = 0;
    }

    Matrix matrix(const float* weights, int rows, int inputs, const float* bias = nullptr, bool gated = false) {
        switch (sizes_.precision) {
            case Precision::FLOAT32: return matrix<Float32>(weights, rows, inputs, bias, gated);
            case Precision::BF16: return matrix<BF16>(weights, rows, inputs, bias, gated);
            case Precision::INT8: break;
        }
        return matrix<Int8>(weights, rows, inputs, bias, gated);
    }

    Norm norm(const float* weight, const float* bias) {
        return {copy(weight, sizes_.d_model), copy(bias, sizes_.d_model), sizes_.epsilon};
    }

   private:
    template <class Weight>
    Matrix matrix(const float* weights, int rows, int inputs, const float* bias, bool gated) {
        using Stored = typename Weight::Stored;
        Matrix result;
        result.inputs = inputs;
        result.columns = count_columns(rows, gated);
        const int64_t place = weights_used_;
        weights_used_ += round_up(result.columns / PANEL * panel_size<Weight>(inputs) * sizeof(Stored), 64);
        float* scales = std::is_same_v<Weight, Int8> ? take(result.columns) : nullptr;
        float* biases = bias ? take(result.columns) : nullptr;
        if (!fill_) return result;
        Stored* panels = reinterpret_cast<Stored*>(weights_.at<char>(place));
        pack<Weight>(weights, rows, inputs, gated, panels, scales);
        for (int column = 0; bias && column < result.columns; ++column) {
            const int row = row_of_column(column, rows, gated);
            if (row >= 0) biases[column] = bias[row];
        }
        result.panels = panels;
        result.scales = scales;
        result.bias = biases;
        return result;
    }

    float* take(int count) {
        const int64_t place = numbers_used_;
        numbers_used_ += round_up(count, LANES);
        return fill_ ? numbers_.at(place) : nullptr;
    }

    const float* copy(const float* from, int count) {
        float* to = take(count);
        if (fill_) std::copy(from, from + count, to);
        return to;
    }

    const Sizes& sizes_;
    Memory& weights_;
    Array<float>& numbers_;
    int64_t weights_used_ = 0, numbers_used_ = 0;
    bool fill_ = false;
};

struct Engine {
    Sizes sizes;
    const float* source_embedding;  // (source_vocabulary, d_model): read in place, only the rows of tokens that occur
    const float* target_embedding;  // (vocabulary, d_model)
    std::vector<EncoderLayer> encoder;
    std::vector<DecoderLayer> decoder;
    Norm encoder_norm{}, decoder_norm{};  // only with norms before the sub-layers
    Matrix output;

    // tensors: source embedding, target embedding, output; with biases, the output's; with norms before the sub-layers,
    // weight and bias of the encoder's and of the decoder's last norm; then those of each encoder and decoder layer.
    Engine(const Sizes& given, const float* const* tensors)
        : sizes(given), source_embedding(tensors[0]), target_embedding(tensors[1]) {
        encoder.resize(sizes.encoder_layers);
        decoder.resize(sizes.decoder_layers);
        Packer packer(sizes, weights_, numbers_);
        for (const bool fill : {false, true}) {
            packer.begin(fill);
            add(packer, tensors + 2);
        }
    }

   private:
    void add(Packer& packer, const float* const* next) {
        const float* output_weights = *next++;
        const float* output_bias = sizes.biases ? *next++ : nullptr;
        const int attention = sizes.biases ? 6 : 4, encoder_count = attention + 6, decoder_count = 2 * attention + 6;
        if (sizes.pre_norm) {
            encoder_norm = packer.norm(next[0], next[1]);
            decoder_norm = packer.norm(next[2], next[3]);
            next += 4;
        }
        const float* const* encoder_tensors = next;
        next += encoder_count * encoder.size();
        const float* const* decoder_tensors = next;
        for (DecoderLayer& layer : decoder) {
            add_attention(packer, layer.self, next, false);
            add_attention(packer, layer.cross, next + attention, true);
            add_feed_forward(packer, layer.feed_forward, next + 2 * attention);
            next += decoder_count;
        }
        output = packer.matrix(output_weights, sizes.vocabulary, sizes.d_model, output_bias);
        // The rest is read only when a sentence begins.
        for (EncoderLayer& layer : encoder) {
            add_attention(packer, layer.self, encoder_tensors, false);
            add_feed_forward(packer, layer.feed_forward, encoder_tensors + attention);
            encoder_tensors += encoder_count;
        }
        for (DecoderLayer& layer : decoder) {
            const int width = sizes.heads * sizes.d_k;
            const float* projection = decoder_tensors[attention];
            layer.cross.key_value = packer.matrix(projection + static_cast<int64_t>(width) * sizes.d_model,
                                                  width + sizes.heads * sizes.d_v, sizes.d_model);
            decoder_tensors += decoder_count;
        }
    }

    // tensors: projection, output, norm weight, norm bias; with biases, also those of the projection and the output
    void add_attention(Packer& packer, Attention& attention, const float* const* tensors, bool cross) {
        const int width = sizes.heads * sizes.d_k, values = sizes.heads * sizes.d_v;
        const float* bias = sizes.biases ? tensors[4] : nullptr;  // zero except for the queries
        if (cross)
            attention.query = packer.matrix(tensors[0], width, sizes.d_model, bias);
        else
            attention.query_key_value = packer.matrix(tensors[0], 2 * width + values, sizes.d_model, bias);
        attention.output = packer.matrix(tensors[1], sizes.d_model, values, sizes.biases ? tensors[5] : nullptr);
        attention.norm = packer.norm(tensors[2], tensors[3]);
    }

    // tensors: inner weight, inner bias, outer weight, outer bias, norm weight, norm bias
    void add_feed_forward(Packer& packer, FeedForward& feed_forward, const float* const* tensors) {
        const bool gated = sizes.activation == Follow::SWIGLU;
        const int inner = gated ? 2 * sizes.d_ff : sizes.d_ff;
        feed_forward.inner = packer.matrix(tensors[0], inner, sizes.d_model, tensors[1], gated);
        feed_forward.outer = packer.matrix(tensors[2], sizes.d_model, sizes.d_ff, tensors[3]);
        feed_forward.norm = packer.norm(tensors[4], tensors[5]);
    }

    Memory weights_;
    Array<float> numbers_;
};

}  // namespace transduce
