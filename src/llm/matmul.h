// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weight products over a thread pool: one or many tokens times one or more matrices.
//
// Work is cut by rows of the matrices, never by columns, so results do not depend on the number of
// threads. One token meets quantized weights in integers, with its activations in two digits, many take the
// arithmetic that PrefillKind names; with `exact` and PrefillKind::kF32 both take the exact products
// (matmul_kernels.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "llm/activation.h"
#include "llm/matmul_kernels.h"
#include "llm/prefill_gemm.h"
#include "llm/product_target.h"
#include "llm/weight_matrix.h"
#include "tensor/matrix_view.h"

namespace kvant {

class Matmul {
 public:
  /// Scratch for up to max_tokens tokens and matrices of up to max_cols columns. `exact`: no rounding of
  /// activations for one token; `prefill`: the arithmetic for more.
  Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols, bool exact,
         PrefillKind prefill = PrefillKind::kF32);

  /// All targets in one parallel loop. They share the activations [n_tokens, n_cols].
  void Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
           ThreadPool& threads);
  /// output = activation(gate x) * (up x): SwiGLU and GEGLU (Shazeer 2020, arXiv 2002.05202).
  void RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                MatrixView<const float> input, MatrixView<float> output, ThreadPool& threads);

 private:
  struct Worker {
    Buffer<float> rows, up_rows;  // outputs of a work item
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

  const MatmulKernels* kernels_;
  std::size_t max_tokens_;
  bool exact_;
  PrefillGemm prefill_;             // products of more than one token
  Buffer<ActivationGroup> digits_;  // [max_cols / 32]
  std::vector<Worker> workers_;
};

}  // namespace kvant
