// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/matmul.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kMaxTargets = 3;  // of one product
constexpr std::size_t kTileColumns = 2 * kPanelRows;  // outputs of one work item of many tokens
// Matrices with fewer rows are cut finer, so that two threads end together.
constexpr std::size_t kFineRows = 2048;

// One token: panels of a work item. The first bound makes claiming an item cheap beside reading it, the
// second holds its outputs.
constexpr std::size_t kItemBytes = 64 << 10;
constexpr std::size_t kItemPanels = 16;

std::size_t PanelsPerTile(const WeightMatrix& weights) { return weights.n_rows() < kFineRows ? 1 : 2; }

std::size_t TilesOf(const WeightMatrix& weights) {
  const std::size_t per_item = PanelsPerTile(weights);
  return (weights.n_panels() + per_item - 1) / per_item;
}

// Panels cut into items of equal size, as many for each thread.
class PanelSplit {
 public:
  PanelSplit(std::size_t n_panels, std::size_t bytes, std::size_t n_threads) : n_panels_(n_panels) {
    const std::size_t wanted = std::max(bytes / kItemBytes, n_panels / kItemPanels) / n_threads + 1;
    n_items_ = std::min(wanted * n_threads, n_panels);
  }
  std::size_t n_items() const { return n_items_; }
  std::size_t begin(std::size_t item) const { return item * n_panels_ / n_items_; }

 private:
  std::size_t n_panels_, n_items_;
};

// Outputs [first_row, first_row + n) of every token from the tile to the target.
void StoreTile(const float* tile, std::size_t n_tokens, std::size_t first_row, std::size_t n,
               const ProductTarget& target) {
  for (std::size_t token = 0; token < n_tokens; ++token) {
    const float* from = tile + token * kTileColumns;
    float* to = target.output.row(token) + first_row;
    if (target.add) {
      for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
    } else {
      std::copy_n(from, n, to);
    }
  }
}

bool IsQuantized(const WeightMatrix& weights) {
  return LayoutOf(weights.type()).block_columns != 0;
}

}  // namespace

Matmul::Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols,
               bool exact)
    : kernels_(&MatmulKernelsOf(isa)),
      max_tokens_(max_tokens),
      exact_(exact),
      digits_(exact ? 0 : max_cols / kSubColumns, MemoryTag::kScratch) {
  for (std::size_t i = 0; i < n_threads; ++i) {
    Worker worker;
    // One token never dequantizes a tile.
    const std::size_t tile_cols = max_tokens > 1 ? max_cols : 0;
    const std::size_t tile = std::max(max_tokens * kTileColumns, (kItemPanels + 1) * kPanelRows);
    worker.weights = Buffer<float>(tile_cols * kTileColumns, MemoryTag::kScratch);
    worker.tile = Buffer<float>(tile, MemoryTag::kScratch);
    worker.up_tile = Buffer<float>(tile, MemoryTag::kScratch);
    workers_.push_back(std::move(worker));
  }
}

Matmul::OneInput Matmul::Prepare(std::span<const WeightMatrix* const> weights, const float* x) {
  if (exact_ || !std::any_of(weights.begin(), weights.end(),
                             [](const WeightMatrix* w) { return IsQuantized(*w); })) {
    return {x, nullptr};
  }
  kernels_->to_digits(x, weights[0]->n_cols() / kSubColumns, digits_.data());
  return {x, digits_.data()};
}

void Matmul::PanelsTimes(const WeightMatrix& weights, std::size_t panel, std::size_t n_panels,
                         const OneInput& input, float* y) const {
  if (input.digits != nullptr && IsQuantized(weights)) {
    kernels_->mat_vec_digits(weights.type(), weights.panel(panel), n_panels, weights.n_cols(),
                             input.digits, y);
  } else {
    kernels_->mat_vec(weights.type(), weights.panel(panel), n_panels, weights.n_cols(), input.x, y);
  }
}

// The panels of all targets in a row.
void Matmul::RunOne(std::span<const ProductTarget> targets, const float* x, ThreadPool& threads) {
  std::size_t n_panels = 0, bytes = 0;
  std::array<const WeightMatrix*, kMaxTargets> weights;
  KVANT_CHECK(targets.size() <= weights.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    weights[i] = targets[i].weights;
    n_panels += weights[i]->n_panels();
    bytes += weights[i]->bytes();
  }
  const OneInput input = Prepare(std::span(weights).first(targets.size()), x);
  const PanelSplit split(n_panels, bytes, threads.n_threads());
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    float* tile = workers_[thread].tile.data();
    std::size_t first = split.begin(item), left = split.begin(item + 1) - first;
    for (const ProductTarget& target : targets) {
      const std::size_t has = target.weights->n_panels();
      if (first >= has) {
        first -= has;
        continue;
      }
      const std::size_t n = std::min(left, has - first);
      PanelsTimes(*target.weights, first, n, input, tile);
      const std::size_t row = first * kPanelRows;
      StoreTile(tile, 1, row, std::min(n * kPanelRows, target.weights->n_rows() - row), target);
      left -= n;
      if (left == 0) return;
      first = 0;
    }
  };
  threads.ParallelFor(split.n_items(), multiply);
}

void Matmul::TileTimes(const WeightMatrix& weights, std::size_t panel, std::size_t n_panels,
                       MatrixView<const float> input, Worker& worker, float* tile) {
  n_panels = std::min(n_panels, weights.n_panels() - panel);
  for (std::size_t i = 0; i < n_panels; ++i) {
    kernels_->dequantize(weights.type(), weights.panel(panel + i), weights.n_cols(),
                         worker.weights.data() + i * kPanelRows, kTileColumns);
  }
  kernels_->gemm_tile({.a = input.data,
                       .a_stride = input.row_stride,
                       .b = worker.weights.data(),
                       .b_stride = kTileColumns,
                       .c = tile,
                       .c_stride = kTileColumns,
                       .n_rows = input.n_rows,
                       .k = weights.n_cols(),
                       .n = n_panels * kPanelRows,
                       .c_scale = nullptr,
                       .c_scale_stride = 0});
}

void Matmul::Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
                 ThreadPool& threads) {
  KVANT_CHECK(input.n_rows <= max_tokens_);
  if (input.n_rows == 1) return RunOne(targets, input.data, threads);
  std::size_t n_items = 0;
  for (const ProductTarget& target : targets) n_items += TilesOf(*target.weights);
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    const ProductTarget* target = targets.data();
    while (item >= TilesOf(*target->weights)) {
      item -= TilesOf(*target->weights);
      ++target;
    }
    Worker& worker = workers_[thread];
    const std::size_t per_item = PanelsPerTile(*target->weights);
    const std::size_t first_row = item * per_item * kPanelRows;
    TileTimes(*target->weights, item * per_item, per_item, input, worker, worker.tile.data());
    const std::size_t n_rows =
        std::min(per_item * kPanelRows, target->weights->n_rows() - first_row);
    StoreTile(worker.tile.data(), input.n_rows, first_row, n_rows, *target);
  };
  threads.ParallelFor(n_items, multiply);
}

void Matmul::RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                      MatrixView<const float> input, MatrixView<float> output,
                      ThreadPool& threads) {
  KVANT_CHECK(input.n_rows <= max_tokens_ && gate.n_rows() == up.n_rows());
  const auto activate =
      activation == Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
  const ProductTarget target = {.weights = &gate, .output = output, .add = false};
  if (input.n_rows == 1) {
    const WeightMatrix* both[] = {&gate, &up};
    const OneInput one = Prepare(both, input.data);
    const PanelSplit split(gate.n_panels(), gate.bytes() + up.bytes(), threads.n_threads());
    const auto multiply_one = [&](std::size_t item, std::size_t thread) {
      Worker& worker = workers_[thread];
      const std::size_t first = split.begin(item), n = split.begin(item + 1) - first;
      PanelsTimes(gate, first, n, one, worker.tile.data());
      PanelsTimes(up, first, n, one, worker.up_tile.data());
      activate(worker.tile.data(), worker.up_tile.data(), n * kPanelRows);
      const std::size_t row = first * kPanelRows;
      StoreTile(worker.tile.data(), 1, row, std::min(n * kPanelRows, gate.n_rows() - row), target);
    };
    return threads.ParallelFor(split.n_items(), multiply_one);
  }
  const std::size_t per_item = PanelsPerTile(gate);
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    Worker& worker = workers_[thread];
    TileTimes(gate, item * per_item, per_item, input, worker, worker.tile.data());
    TileTimes(up, item * per_item, per_item, input, worker, worker.up_tile.data());
    const std::size_t first_row = item * per_item * kPanelRows;
    const std::size_t n_rows = std::min(per_item * kPanelRows, gate.n_rows() - first_row);
    for (std::size_t token = 0; token < input.n_rows; ++token) {
      activate(worker.tile.data() + token * kTileColumns,
               worker.up_tile.data() + token * kTileColumns,
               (n_rows + 15) / 16 * 16);
    }
    StoreTile(worker.tile.data(), input.n_rows, first_row, n_rows, target);
  };
  threads.ParallelFor(TilesOf(gate), multiply);
}

}  // namespace kvant
