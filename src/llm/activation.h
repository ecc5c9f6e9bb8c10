// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What the gate of a feed-forward part goes through.
#pragma once

#include <cstdint>

namespace kvant {

enum class Activation : std::uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGeluTanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), arXiv 1606.08415
};

}  // namespace kvant
