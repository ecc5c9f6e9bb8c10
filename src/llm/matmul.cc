// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/matmul.h"

#include <algorithm>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kTileColumns = 2 * kPairRows;  // outputs of one work item at most
// Matrices with fewer rows are cut finer, so that two threads end together.
constexpr std::size_t kFineRows = 2048;

std::size_t PairsPerItem(const WeightMatrix& weights, std::size_t n_tokens) {
  return n_tokens == 1 || weights.n_rows() < kFineRows ? 1 : 2;
}

std::size_t ItemsOf(const WeightMatrix& weights, std::size_t n_tokens) {
  const std::size_t per_item = PairsPerItem(weights, n_tokens);
  return (weights.n_pairs() + per_item - 1) / per_item;
}

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

}  // namespace

Matmul::Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols)
    : kernels_(&MatmulKernelsOf(isa)), max_tokens_(max_tokens) {
  for (std::size_t i = 0; i < n_threads; ++i) {
    Worker worker;
    // One token never dequantizes a tile.
    const std::size_t tile_cols = max_tokens > 1 ? max_cols : 0;
    worker.weights = Buffer<float>(tile_cols * kTileColumns, MemoryTag::kScratch);
    worker.tile = Buffer<float>(max_tokens * kTileColumns, MemoryTag::kScratch);
    worker.up_tile = Buffer<float>(max_tokens * kTileColumns, MemoryTag::kScratch);
    workers_.push_back(std::move(worker));
  }
}

void Matmul::RowsTimes(const WeightMatrix& weights, std::size_t pair, std::size_t n_pairs,
                       MatrixView<const float> input, Worker& worker, float* tile) {
  if (input.n_rows == 1) {
    kernels_->mat_vec(weights.type(), weights.panel(2 * pair), weights.panel_bytes(),
                      weights.n_cols(), input.data, tile);
    return;
  }
  const std::size_t n_panels = 2 * std::min(n_pairs, weights.n_pairs() - pair);
  for (std::size_t i = 0; i < n_panels; ++i) {
    kernels_->dequantize(weights.type(), weights.panel(2 * pair + i), weights.n_cols(),
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
  std::size_t n_items = 0;
  for (const ProductTarget& target : targets) n_items += ItemsOf(*target.weights, input.n_rows);
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    const ProductTarget* target = targets.data();
    while (item >= ItemsOf(*target->weights, input.n_rows)) {
      item -= ItemsOf(*target->weights, input.n_rows);
      ++target;
    }
    Worker& worker = workers_[thread];
    const std::size_t per_item = PairsPerItem(*target->weights, input.n_rows);
    const std::size_t first_row = item * per_item * kPairRows;
    RowsTimes(*target->weights, item * per_item, per_item, input, worker, worker.tile.data());
    const std::size_t n_rows =
        std::min(per_item * kPairRows, target->weights->n_rows() - first_row);
    StoreTile(worker.tile.data(), input.n_rows, first_row, n_rows, *target);
  };
  threads.ParallelFor(n_items, multiply);
}

void Matmul::RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                      MatrixView<const float> input, MatrixView<float> output,
                      ThreadPool& threads) {
  KVANT_CHECK(input.n_rows <= max_tokens_ && gate.n_rows() == up.n_rows());
  const std::size_t per_item = PairsPerItem(gate, input.n_rows);
  const auto activate =
      activation == Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
  const ProductTarget target = {.weights = &gate, .output = output, .add = false};
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    Worker& worker = workers_[thread];
    RowsTimes(gate, item * per_item, per_item, input, worker, worker.tile.data());
    RowsTimes(up, item * per_item, per_item, input, worker, worker.up_tile.data());
    const std::size_t first_row = item * per_item * kPairRows;
    const std::size_t n_rows = std::min(per_item * kPairRows, gate.n_rows() - first_row);
    for (std::size_t token = 0; token < input.n_rows; ++token) {
      activate(worker.tile.data() + token * kTileColumns,
               worker.up_tile.data() + token * kTileColumns,
               (n_rows + kPanelRows - 1) / kPanelRows * kPanelRows);
    }
    StoreTile(worker.tile.data(), input.n_rows, first_row, n_rows, target);
  };
  threads.ParallelFor(ItemsOf(gate, input.n_rows), multiply);
}

}  // namespace kvant
