// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Random rows of quantized weights. A row is decided by type, deviation and seed alone, so that rows can be
// made in any order, by any thread, and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "llm/gguf.h"

namespace kvant {

/// Fills `out`, whole blocks of the type (Q4_0, Q4_1, Q4_K, Q6_K or Q8_0), with weights of mean 0 and about
/// this deviation. Codes are uniform, so every code occurs; scales vary where a block has several.
void MakeRandomRow(WeightType type, double deviation, std::uint64_t seed, std::span<std::byte> out);

}  // namespace kvant
