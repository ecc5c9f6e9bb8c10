// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weight products over a thread pool: one or many tokens times one or more matrices.
//
// Work is cut by rows of the matrices, never by columns, so results do not depend on the number of
// threads; one token and many take the same operations for each output (matmul_kernels.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "llm/matmul_kernels.h"
#include "llm/weight_matrix.h"

namespace kvant {

/// One matrix of a product and where its outputs go.
struct ProductTarget {
  const WeightMatrix* weights;  // [n_rows, n_cols]
  float* output;                // [n_tokens, output_stride], n_rows written in each
  std::size_t output_stride;
  bool add = false;  // output += product (residual) instead of output = product
};

/// Activations of a product.
struct ProductInput {
  const float* x;  // [n_tokens, stride], n_cols read in each
  std::size_t stride;
  std::size_t n_tokens;
};

class Matmul {
 public:
  /// Scratch for up to max_tokens tokens and matrices of up to max_cols columns.
  Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols);

  /// All targets in one parallel loop. They share the input, hence n_cols.
  void Run(std::span<const ProductTarget> targets, const ProductInput& input, ThreadPool& threads);
  /// output = silu(gate x) * (up x): SwiGLU (Shazeer 2020, arXiv 2002.05202).
  void RunGated(const WeightMatrix& gate, const WeightMatrix& up, const ProductInput& input,
                float* output, std::size_t output_stride, ThreadPool& threads);

 private:
  struct Worker {
    Buffer<float> weights;        // [n_cols, 64]
    Buffer<float> tile, up_tile;  // [n_tokens, 64]
  };
  void RowsTimes(const WeightMatrix& weights, std::size_t pair, std::size_t n_pairs,
                 const ProductInput& input, Worker& worker, float* tile);

  const MatmulKernels* kernels_;
  std::size_t max_tokens_;
  std::vector<Worker> workers_;
};

}  // namespace kvant
