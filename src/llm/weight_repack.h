// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rows as GGUF stores them into panels (weight_layout.h). It moves bits and changes no value. Only
// WeightMatrix::Load calls it.
#pragma once

#include <cstddef>
#include <span>

#include "llm/gguf.h"

namespace kvant {

/// Writes up to 32 rows of n_cols values (whole blocks) to the rows 0, 1, ... of a panel; the others stay as
/// they are.
void RepackPanel(WeightType type, std::span<const std::byte* const> rows, std::size_t n_cols,
                 std::byte* panel);

}  // namespace kvant
