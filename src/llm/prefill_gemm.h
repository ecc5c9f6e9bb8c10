// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weight products of many tokens: each work item turns a tile of rows into numbers that its arithmetic
// multiplies, once, and passes blocks of tokens over it while it stays in the second-level cache.
//
// Work is cut by rows of the matrices, so results do not depend on the number of threads; every block of
// tokens takes the same code, so they do not depend on the number of tokens either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "llm/activation.h"
#include "llm/bfloat16_kernels.h"
#include "llm/matmul_kernels.h"
#include "llm/onednn_gemm.h"
#include "llm/prefill_choice.h"
#include "llm/product_target.h"
#include "llm/weight_matrix.h"
#include "tensor/matrix_view.h"

namespace kvant {

class PrefillGemm {
 public:
  /// Scratch for up to max_tokens tokens and matrices of up to max_cols columns.
  PrefillGemm(Isa isa, PrefillKind kind, std::size_t n_threads, std::size_t max_tokens,
              std::size_t max_cols);

  /// What Matmul says of its functions of these names.
  void Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
           ThreadPool& threads);
  void RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                MatrixView<const float> input, MatrixView<float> output, ThreadPool& threads);

 private:
  // The weights of a tile and what a block of tokens gives with it.
  struct Tile {
    Buffer<float> floats;          // [n_cols, kGemmRows]; kF32
    Buffer<std::uint16_t> pairs;   // [depth / 2, kGemmRows, 2]; kBf16
    Buffer<float> product;         // [kGemmTokens, kGemmRows]
  };
  struct Worker {
    Tile tile, up_tile;
    Buffer<float> strip;  // some columns of a panel, on their way to pairs
  };
  std::size_t TileRows(const WeightMatrix& weights) const;
  std::size_t TilesOf(const WeightMatrix& weights) const;
  void Prepare(MatrixView<const float> input, ThreadPool& threads);
  void LoadTile(const WeightMatrix& weights, std::size_t first_row, Worker& worker, Tile& tile);
  void Multiply(const WeightMatrix& weights, std::size_t first_row, std::size_t first_token,
                MatrixView<const float> input, std::size_t thread, Tile& tile);

  const MatmulKernels* kernels_;
  const BFloat16Kernels* bfloat16_;
  PrefillKind kind_;
  std::optional<OneDnnGemm> onednn_;       // kBf16
  std::vector<Worker> workers_;            // [n_threads]
  // [token block][kPartDepth of the columns][kGemmTokens, part], zeros behind the last token and column.
  Buffer<std::uint16_t> activations_;
};

}  // namespace kvant
