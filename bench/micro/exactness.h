// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Is a kernel's number what its Exactness promises?
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kv/method.h"

namespace kvant::micro {

/// `magnitude`: the sum of magnitudes that kTolerance is relative to.
inline bool Agrees(const Exactness& exactness, float got, float want, double magnitude) {
  if (got == want) return true;
  const double error = std::abs(static_cast<double>(got) - static_cast<double>(want));
  switch (exactness.kind) {
    case Exactness::Kind::kBitExact:
      return false;
    case Exactness::Kind::kUlp: {
      const float size = std::max(std::abs(want), std::numeric_limits<float>::min());
      const float ulp = std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
      return error <= exactness.bound * static_cast<double>(ulp);
    }
    case Exactness::Kind::kTolerance:
      return error <= exactness.bound * magnitude;
  }
  return false;
}

}  // namespace kvant::micro
