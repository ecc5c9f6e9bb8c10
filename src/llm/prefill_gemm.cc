// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/prefill_gemm.h"

#include <algorithm>

#include "base/error.h"

namespace kvant {
namespace {

// Smaller matrices are cut finer, so that two threads end together.
constexpr std::size_t kFineRows = 2048;
// Columns that pass through the strip at a time: whole blocks of every weight type.
constexpr std::size_t kStripColumns = 256;
// Deeper products run as a sum of parts, whose operands fit the second-level cache together.
constexpr std::size_t kPartDepth = 3072;
static_assert(kPartDepth % kStripColumns == 0 && kStripColumns % kGemmDepthStep == 0);

std::size_t RoundUp(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

std::size_t DepthOf(std::size_t n_cols) { return RoundUp(n_cols, kGemmDepthStep); }

// Calls body(first_column, depth of the part).
template <typename Body>
void ForParts(std::size_t depth, const Body& body) {
  for (std::size_t first = 0; first < depth; first += kPartDepth) {
    body(first, std::min(kPartDepth, depth - first));
  }
}

// A block of products to the rows of their tokens.
void Store(const float* tile, std::size_t first_token, std::size_t first_row, std::size_t max_rows,
           const ProductTarget& target) {
  const std::size_t n_tokens = std::min(kGemmTokens, target.output.n_rows - first_token);
  const std::size_t n = std::min(max_rows, target.weights->n_rows() - first_row);
  for (std::size_t token = 0; token < n_tokens; ++token) {
    const float* from = tile + token * kGemmRows;
    float* to = target.output.row(first_token + token) + first_row;
    if (target.add) {
      for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
    } else {
      std::copy_n(from, n, to);
    }
  }
}

}  // namespace

PrefillGemm::PrefillGemm(Isa isa, PrefillKind kind, std::size_t n_threads, std::size_t max_tokens,
                         std::size_t max_cols)
    : kernels_(&MatmulKernelsOf(isa)), bfloat16_(&BFloat16KernelsOf(isa)), kind_(kind) {
  if (max_tokens < 2) return;  // one token comes another way
  constexpr MemoryTag kTag = MemoryTag::kScratch;
  const bool bf16 = kind == PrefillKind::kBf16;
  const auto make_tile = [&] {
    Tile tile;
    if (bf16) {
      tile.pairs = Buffer<std::uint16_t>(DepthOf(max_cols) * kGemmRows, kTag);
    } else {
      tile.floats = Buffer<float>(max_cols * kGemmRows, kTag);
    }
    tile.product = Buffer<float>(kGemmTokens * kGemmRows, kTag);
    return tile;
  };
  for (std::size_t i = 0; i < n_threads; ++i) {
    Worker worker = {make_tile(), make_tile(), {}};
    if (bf16) worker.strip = Buffer<float>(kStripColumns * kPanelRows, kTag);
    workers_.push_back(std::move(worker));
  }
  if (!bf16) return;
  onednn_.emplace(n_threads);
  activations_ =
      Buffer<std::uint16_t>(RoundUp(max_tokens, kGemmTokens) * DepthOf(max_cols), kTag);
}

std::size_t PrefillGemm::TileRows(const WeightMatrix& weights) const {
  return kind_ == PrefillKind::kF32 && weights.n_rows() < kFineRows ? kPanelRows : kGemmRows;
}

std::size_t PrefillGemm::TilesOf(const WeightMatrix& weights) const {
  const std::size_t rows = TileRows(weights);
  return (weights.n_rows() + rows - 1) / rows;
}

void PrefillGemm::Prepare(MatrixView<const float> input, ThreadPool& threads) {
  if (kind_ != PrefillKind::kBf16) return;
  const std::size_t depth = DepthOf(input.n_cols);
  ForParts(depth, [&](std::size_t, std::size_t part) { onednn_->Prepare(part); });
  const auto round = [&](std::size_t block, std::size_t) {
    std::uint16_t* out = activations_.data() + block * kGemmTokens * depth;
    ForParts(depth, [&](std::size_t first, std::size_t part) {
      const std::size_t n = std::min(part, input.n_cols - first);
      for (std::size_t i = 0; i < kGemmTokens; ++i, out += part) {
        const std::size_t token = block * kGemmTokens + i;
        const std::size_t n_used = token < input.n_rows ? n : 0;
        if (n_used > 0) bfloat16_->round(input.row(token) + first, n_used, out);
        std::fill(out + n_used, out + part, std::uint16_t{0});
      }
    });
  };
  threads.ParallelFor(RoundUp(input.n_rows, kGemmTokens) / kGemmTokens, round);
}

void PrefillGemm::LoadTile(const WeightMatrix& weights, std::size_t first_row, Worker& worker,
                           Tile& tile) {
  const std::size_t first_panel = first_row / kPanelRows, n_cols = weights.n_cols();
  const std::size_t n_panels =
      std::min(TileRows(weights) / kPanelRows, weights.n_panels() - first_panel);
  for (std::size_t i = 0; i < n_panels; ++i) {
    const std::byte* panel = weights.panel(first_panel + i);
    if (kind_ == PrefillKind::kF32) {
      kernels_->dequantize(weights.type(), panel, n_cols, tile.floats.data() + i * kPanelRows,
                           kGemmRows);
      continue;
    }
    std::uint16_t* pairs = tile.pairs.data() + i * kPanelRows * 2;
    for (std::size_t col = 0; col < n_cols; col += kStripColumns) {
      const std::size_t n = std::min(kStripColumns, n_cols - col), depth = DepthOf(n);
      kernels_->dequantize(weights.type(), panel, n, worker.strip.data(), kPanelRows);
      std::fill(worker.strip.data() + n * kPanelRows, worker.strip.data() + depth * kPanelRows,
                0.0f);
      bfloat16_->pack_pairs(worker.strip.data(), depth, pairs, 2 * kGemmRows);
      panel += PanelBytes(weights.type(), n);
      pairs += depth * kGemmRows;
    }
  }
}

void PrefillGemm::Multiply(const WeightMatrix& weights, std::size_t first_row,
                           std::size_t first_token, MatrixView<const float> input,
                           std::size_t thread, Tile& tile) {
  float* product = tile.product.data();
  if (kind_ == PrefillKind::kBf16) {
    const std::size_t depth = DepthOf(weights.n_cols());
    const std::uint16_t* a = activations_.data() + first_token * depth;
    const std::uint16_t* b = tile.pairs.data();
    ForParts(depth, [&](std::size_t first, std::size_t part) {
      onednn_->Run(thread, part, a, b, product, first > 0);
      a += kGemmTokens * part;
      b += kGemmRows * part;
    });
    return;
  }
  kernels_->gemm_tile(
      {.a = input.row(first_token),
       .a_stride = input.row_stride,
       .b = tile.floats.data(),
       .b_stride = kGemmRows,
       .c = product,
       .c_stride = kGemmRows,
       .n_rows = std::min(kGemmTokens, input.n_rows - first_token),
       .k = weights.n_cols(),
       .n = std::min(TileRows(weights), weights.n_panels() * kPanelRows - first_row),
       .c_scale = nullptr,
       .c_scale_stride = 0});
}

void PrefillGemm::Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
                      ThreadPool& threads) {
  Prepare(input, threads);
  std::size_t n_items = 0;
  for (const ProductTarget& target : targets) n_items += TilesOf(*target.weights);
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    const ProductTarget* target = targets.data();
    for (; item >= TilesOf(*target->weights); ++target) item -= TilesOf(*target->weights);
    const WeightMatrix& weights = *target->weights;
    const std::size_t rows = TileRows(weights), first_row = item * rows;
    Worker& worker = workers_[thread];
    LoadTile(weights, first_row, worker, worker.tile);
    for (std::size_t token = 0; token < input.n_rows; token += kGemmTokens) {
      Multiply(weights, first_row, token, input, thread, worker.tile);
      Store(worker.tile.product.data(), token, first_row, rows, *target);
    }
  };
  threads.ParallelFor(n_items, multiply);
}

void PrefillGemm::RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                           MatrixView<const float> input, MatrixView<float> output,
                           ThreadPool& threads) {
  Prepare(input, threads);
  const auto activate =
      activation == Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
  const ProductTarget target = {.weights = &gate, .output = output, .add = false};
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    const std::size_t rows = TileRows(gate), first_row = item * rows;
    Worker& worker = workers_[thread];
    LoadTile(gate, first_row, worker, worker.tile);
    LoadTile(up, first_row, worker, worker.up_tile);
    for (std::size_t token = 0; token < input.n_rows; token += kGemmTokens) {
      Multiply(gate, first_row, token, input, thread, worker.tile);
      Multiply(up, first_row, token, input, thread, worker.up_tile);
      const std::size_t n_tokens = std::min(kGemmTokens, input.n_rows - token);
      for (std::size_t i = 0; i < n_tokens; ++i) {
        activate(worker.tile.product.data() + i * kGemmRows,
                 worker.up_tile.product.data() + i * kGemmRows, rows);
      }
      Store(worker.tile.product.data(), token, first_row, rows, target);
    }
  };
  threads.ParallelFor(TilesOf(gate), multiply);
}

}  // namespace kvant
