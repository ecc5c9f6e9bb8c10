// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weight products over a thread pool: one or many tokens times one or more matrices.
//
// Work is cut by rows of the matrices, never by columns, so results do not depend on the number of
// threads. One token meets quantized weights in integers, with its activations in two digits; many tokens, and
// one where `exact` asks for it, take the exact products (matmul_kernels.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "llm/activation.h"
#include "llm/matmul_kernels.h"
#include "llm/weight_matrix.h"
#include "tensor/matrix_view.h"

namespace kvant {

/// One matrix of a product and where its outputs go.
struct ProductTarget {
  const WeightMatrix* weights;  // [n_rows, n_cols]
  MatrixView<float> output;     // [n_tokens, weights->n_rows()]
  bool add = false;             // output += product (residual) instead of output = product
};

class Matmul {
 public:
  /// Scratch for up to max_tokens tokens and matrices of up to max_cols columns. With `exact` one token and
  /// many give the same bits.
  Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols, bool exact);

  /// All targets in one parallel loop. They share the activations [n_tokens, n_cols].
  void Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
           ThreadPool& threads);
  /// output = activation(gate x) * (up x): SwiGLU and GEGLU (Shazeer 2020, arXiv 2002.05202).
  void RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                MatrixView<const float> input, MatrixView<float> output, ThreadPool& threads);

 private:
  struct Worker {
    Buffer<float> weights;        // [n_cols, 64]
    Buffer<float> tile, up_tile;  // [n_tokens, 64], or panels of one token
  };
  // One token as the products of a matrix take it.
  struct OneInput {
    const float* x;
    const ActivationGroup* digits;
  };
  OneInput Prepare(std::span<const WeightMatrix* const> weights, const float* x);
  void PanelsTimes(const WeightMatrix& weights, std::size_t panel, std::size_t n_panels,
                   const OneInput& input, float* y) const;
  void RunOne(std::span<const ProductTarget> targets, const float* x, ThreadPool& threads);
  void TileTimes(const WeightMatrix& weights, std::size_t panel, std::size_t n_panels,
                 MatrixView<const float> input, Worker& worker, float* tile);

  const MatmulKernels* kernels_;
  std::size_t max_tokens_;
  bool exact_;
  Buffer<ActivationGroup> digits_;  // [max_cols / 32]
  std::vector<Worker> workers_;
};

}  // namespace kvant
