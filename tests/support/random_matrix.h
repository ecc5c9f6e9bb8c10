// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A GGUF file in memory with one weight matrix of random codes, and the values that it means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "llm/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {

/// The smallest number of columns of at least n_cols that is whole blocks of the type.
inline std::size_t WholeBlocks(WeightType type, std::size_t n_cols) {
  const std::size_t block = InfoOf(type).block_values;
  return (n_cols + block - 1) / block * block;
}

class RandomMatrix {
 public:
  /// n_cols: whole blocks of the type.
  RandomMatrix(WeightType type, std::size_t n_rows, std::size_t n_cols, std::uint64_t seed)
      : n_rows_(n_rows),
        n_cols_(n_cols),
        bytes_(FileBytes(type, n_rows, n_cols, seed)),
        file_(GgufFile::FromBytes(bytes_, "random matrix")) {
    for (std::size_t row = 0; row < n_rows; ++row) {
      for (const double value : DecodeRow(tensor(), row)) {
        values_.push_back(static_cast<float>(value));
      }
    }
  }

  const GgufFile& file() const { return file_; }
  const GgufTensor& tensor() const { return *file_.FindTensor("matrix"); }
  std::size_t n_rows() const { return n_rows_; }
  std::size_t n_cols() const { return n_cols_; }
  /// The weight of GGUF's definition, rounded once to float.
  float value(std::size_t row, std::size_t col) const { return values_[row * n_cols_ + col]; }

 private:
  // Where the halfs of a block are.
  static std::vector<std::size_t> HalfOffsets(WeightType type) {
    switch (type) {
      case WeightType::kQ4_0:
      case WeightType::kQ5_0:
      case WeightType::kQ8_0:
      case WeightType::kIQ4_NL: return {0};
      case WeightType::kQ4_1:
      case WeightType::kQ5_1:
      case WeightType::kQ4_K:
      case WeightType::kQ5_K: return {0, 2};
      case WeightType::kQ2_K: return {80, 82};
      case WeightType::kQ3_K: return {108};
      case WeightType::kQ6_K: return {208};
      default: return {};
    }
  }
  // Quantized types: every code is random, scales are finite halves of either sign and any size.
  static std::vector<std::byte> TensorBytes(WeightType type, std::size_t n_values,
                                            SplitMix64& rng) {
    const WeightTypeInfo& info = InfoOf(type);
    if (info.block_values == 1) {
      std::vector<double> values(n_values);
      for (double& value : values) value = rng.Normal();
      return EncodeWeights(type, values);
    }
    std::vector<std::byte> bytes(n_values / info.block_values * info.block_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Below(256));
    for (std::size_t block = 0; block < bytes.size(); block += info.block_bytes) {
      for (const std::size_t half : HalfOffsets(type)) {
        // The exponent's top bit: cleared, so that no scale is infinite and sums stay finite.
        bytes[block + half + 1] &= static_cast<std::byte>(0xbf);
      }
    }
    return bytes;
  }
  static std::vector<std::byte> FileBytes(WeightType type, std::size_t n_rows, std::size_t n_cols,
                                          std::uint64_t seed) {
    SplitMix64 rng(seed);
    GgufWriter writer;
    writer.AddTensor("matrix", static_cast<std::uint32_t>(type), {n_cols, n_rows},
                     TensorBytes(type, n_rows * n_cols, rng));
    return writer.Build();
  }

  std::size_t n_rows_, n_cols_;
  std::vector<std::byte> bytes_;
  GgufFile file_;
  std::vector<float> values_;
};

}  // namespace kvant::test
