// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Ways of reading memory and doing nothing else: the yardstick of every other row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cpu/isa.h"

namespace kvant::micro {

/// Words of 64 bits that a call takes a multiple of (4 registers of 64 bytes).
inline constexpr std::size_t kReadStep = 32;

struct ReadKernel {
  std::string_view name;
  Isa isa;
  /// The sum of n words; n is a multiple of kReadStep, `words` is aligned to 64 bytes.
  std::uint64_t (*sum)(const std::uint64_t* words, std::size_t n);
};

/// All that were compiled; not every processor runs each (`isa`).
std::span<const ReadKernel> ReadKernels();
/// The one that every processor runs: a loop as a compiler makes it.
const ReadKernel& PlainReadKernel();

}  // namespace kvant::micro
