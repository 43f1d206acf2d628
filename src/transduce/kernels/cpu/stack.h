// What encoder and decoder share: taking rows of numbers through a stack of layers.
#pragma once

#include "attention.h"
#include "model.h"

namespace transduce {

// The buffers of one pass; each row is padded with zeros to whole panels.
class Rows {
   public:
    explicit Rows(const Sizes& sizes)
        : model_width(count_columns(sizes.d_model, false)),
          head_width(count_columns(sizes.heads * sizes.d_v, false)),
          projection_width(count_columns(sizes.heads * (2 * sizes.d_k + sizes.d_v), false)),
          inner_width(count_columns(sizes.d_ff, false)),
          precision_(sizes.precision) {}

    void reserve(int64_t rows) {
        if (rows <= rows_) return;
        rows_ = rows;
        x.reserve(rows * model_width);
        normed.reserve(rows * model_width);
        projected.reserve(rows * projection_width);
        heads.reserve(rows * head_width);
        inner.reserve(rows * inner_width);
        if (precision_ != Precision::INT8) return;
        quantised.reserve(rows * std::max({model_width, head_width, inner_width}));
        scales.reserve(rows);
        sums.reserve(rows);
    }

    const int64_t model_width, head_width, projection_width, inner_width;
    Array<float> x, normed, projected, heads, inner;
    Array<Int8::Input> quantised;
    Array<float> scales;
    Array<int32_t> sums;

   private:
    const Precision precision_;
    int64_t rows_ = 0;
};

// One worker's part in taking some rows through the layers. The workers share out the columns within a product, and the
// rows (or heads) between products.
class Pass {
   public:
    Pass(const Engine& engine, Rows& rows, int count, const Worker& worker)
        : engine(engine), sizes(engine.sizes), rows(rows), count(count), worker(worker) {}

    // Make rows of `width` numbers the inputs of a product, and wait until all workers have done their share.
    Inputs inputs(const float* values, int64_t stride, int width) {
        if (sizes.precision == Precision::INT8) {
            const auto [first, end] = worker.share(count);
            for (int row = first; row < end; ++row)
                quantise(values + row * stride, width, rows.quantised.at(row * stride), rows.scales.at(row),
                         rows.sums.at(row));
        }
        worker.meet();
        return {values, rows.quantised.at(), stride, rows.scales.at(), rows.sums.at()};
    }

    // The input of a sub-layer: x, or its norm.
    Inputs enter(const Norm& norm) {
        if (!sizes.pre_norm) return inputs(rows.x.at(), rows.model_width, sizes.d_model);
        return normed_inputs(norm);
    }

    Inputs normed_inputs(const Norm& norm) {
        normalise_rows(norm, rows.normed.at());
        return inputs(rows.normed.at(), rows.model_width, sizes.d_model);
    }

    // The output of a sub-layer has been added to x; norm the sum, unless norms come before the sub-layers.
    void leave(const Norm& norm) {
        worker.meet();
        if (!sizes.pre_norm) normalise_rows(norm, rows.x.at());
    }

    void multiply(const Matrix& matrix, const Inputs& from, const Outputs& to) {
        transduce::multiply(sizes.precision, matrix, from, count, to, worker);
    }

    // Wait until all workers have written their heads, then add W^O times the concatenated heads to x.
    void combine(const Attention& attention) {
        worker.meet();
        const Inputs from = inputs(rows.heads.at(), rows.head_width, sizes.heads * sizes.d_v);
        multiply(attention.output, from, {rows.x.at(), rows.model_width, Follow::NOTHING, rows.x.at()});
        leave(attention.norm);
    }

    void feed_forward(const FeedForward& layer) {
        multiply(layer.inner, enter(layer.norm), {rows.inner.at(), rows.inner_width, sizes.activation});
        worker.meet();
        const Inputs from = inputs(rows.inner.at(), rows.inner_width, sizes.d_ff);
        multiply(layer.outer, from, {rows.x.at(), rows.model_width, Follow::NOTHING, rows.x.at()});
        leave(layer.norm);
    }

    const Engine& engine;
    const Sizes& sizes;
    Rows& rows;
    const int count;
    const Worker& worker;

   private:
    void normalise_rows(const Norm& norm, float* results) {
        const auto [first, end] = worker.share(count);
        for (int row = first; row < end; ++row)
            normalise(rows.x.at(row * rows.model_width), norm, sizes.d_model, results + row * rows.model_width);
    }
};

}  // namespace transduce
