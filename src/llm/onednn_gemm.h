// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// bfloat16 products of one fixed shape through oneDNN, each on the thread that asks for it. The only door
// to that library: no other file names its types, and a build without it has the same functions.
//
// The shape is fixed (64 tokens, 64 rows of weights, a depth that the matrix gives), so that an output does
// not depend on how many tokens, rows or threads there are; the library would choose other code for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kvant {

inline constexpr std::size_t kGemmTokens = 64;
inline constexpr std::size_t kGemmRows = 64;
inline constexpr std::size_t kGemmDepthStep = 32;  // depths are multiples of this

class OneDnnGemm {
 public:
  /// Why this build or library cannot; empty where it can. That it runs is shown by running it
  /// (prefill_choice.h).
  static std::string WhyNotBuilt();

  /// Throws Error(kUnsupported) where WhyNotBuilt() says why.
  explicit OneDnnGemm(std::size_t n_threads);
  ~OneDnnGemm();
  OneDnnGemm(OneDnnGemm&&) noexcept;
  OneDnnGemm& operator=(OneDnnGemm&&) noexcept;

  /// Compiles the products of this depth, once. Not while another thread runs. Throws Error(kUnsupported)
  /// where the library has no fast code for them on this processor.
  void Prepare(std::size_t depth);
  /// c [64, 64] = a [64, depth] b, or += where `add`. a is contiguous; b [depth / 2, 64, 2] holds pairs of
  /// neighbouring columns of a row side by side. `thread` < n_threads; each number on one thread at a time.
  void Run(std::size_t thread, std::size_t depth, const std::uint16_t* a, const std::uint16_t* b,
           float* c, bool add);
  /// The library's name of the code that products of a prepared depth take.
  std::string Implementation(std::size_t depth) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
