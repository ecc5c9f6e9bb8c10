// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The part of attention that no codec owns: the running softmax, merging of splits, and the float tile
// product. One table for each instruction set; all of them give the same bits.
#pragma once

#include <cstddef>

#include "backend/cpu/gemm_tile.h"
#include "backend/cpu/isa.h"
#include "kv/read_ahead.h"
#include "kv/transforms/block_bias.h"

namespace kvant {

/// One step of the running softmax for each row and each block of 64 scores, in order: new maximum,
/// weights 2^(score - maximum) in place of the scores, their sum. `rescale` gets, for each block, the
/// factor 2^(old maximum - new maximum) that the output so far must be multiplied with. A block whose
/// scores are all -infinity changes nothing (weights 0, factor 1).
struct SoftmaxArgs {
  float* scores;  // [n_rows, stride] base-2 logits in, weights out
  std::size_t stride;
  std::size_t n_rows;
  std::size_t n_blocks;
  float* max;      // [n_rows] running maximum; -infinity at the start
  float* sum;      // [n_rows] running sum of weights; 0 at the start
  float* rescale;  // [n_rows, rescale_stride]
  std::size_t rescale_stride;
  const float* bias = nullptr;  // [n_rows, bias_stride] one number for each block, added to its scores
  std::size_t bias_stride = 0;
  /// [n_rows, block_max_stride] the running maximum after each block, which its weights are
  /// relative to; nullptr: not wanted.
  float* block_max = nullptr;
  std::size_t block_max_stride = 0;
  ReadAhead* ahead = nullptr;  // stepped once for each row and block; may be nullptr
};

/// Adds one split's result to the total: both are scaled to the larger maximum. Rows whose part saw no
/// token (maximum -infinity) are left alone; the first part is copied.
struct MergeArgs {
  const float* part_output;  // [n_rows, head_dim]
  const float* part_max;     // [n_rows]
  const float* part_sum;
  float* output;
  float* max;
  float* sum;
  std::size_t n_rows;
  std::size_t head_dim;
};

/// Attention of each query row over a few rows of floats, added to a running state: scores, softmax, sums.
struct AttendRowsArgs {
  const float* query;  // [n_query, head_dim]
  std::size_t n_query;
  std::size_t head_dim;
  const float* keys;    // [n_rows, head_dim]
  const float* values;  // [n_rows, head_dim]
  std::size_t n_rows;   // at most 64
  float* max;           // [n_query]
  float* sum;           // [n_query]
  float* output;        // [n_query, head_dim]
  /// [n_query, weights_stride] the rows' weights, relative to the maximum after them; nullptr: not
  /// wanted.
  float* weights = nullptr;
  std::size_t weights_stride = 0;
};

/// Softmax mass of tokens: weights times a factor for each row and block of 64 tokens, summed over
/// the rows in order.
struct AddMassArgs {
  const float* weights;  // [n_rows, weights_stride]
  std::size_t weights_stride;
  const float* factors;  // [n_rows, factors_stride] one for each block
  std::size_t factors_stride;
  std::size_t n_rows;
  std::size_t n_tokens;  // the last block may have fewer than 64; its weights are read all the same
  float* mass;           // [n_tokens], added to
};

struct AttentionKernels {
  void (*block_bias)(const BlockBiasArgs& args) noexcept;
  void (*softmax)(const SoftmaxArgs& args) noexcept;
  void (*attend_rows)(const AttendRowsArgs& args) noexcept;
  void (*merge)(const MergeArgs& args) noexcept;
  /// output[r] /= sum[r]
  void (*normalize)(float* output, const float* sum, std::size_t n_rows,
                    std::size_t head_dim) noexcept;
  /// block_max[b] becomes 2^(block_max[b] - max) / sum; n_blocks rounded up to 16 are there.
  void (*mass_factors)(float* block_max, std::size_t n_blocks, float max, float sum) noexcept;
  void (*add_mass)(const AddMassArgs& args) noexcept;
  GemmTileFunction gemm_tile;
};

/// The table of an ISA; the caller checked that it is supported.
const AttentionKernels& AttentionKernelsOf(Isa isa);

}  // namespace kvant
