// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Bounds on what one rendering may cost. A template is part of a model file, so it may be hostile:
// without bounds, nested loops run for ever and doubled strings fill the memory.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace kvant::jinja {

class Budget {
 public:
  Budget(std::uint64_t max_steps, std::uint64_t max_bytes)
      : max_steps_(max_steps), max_bytes_(max_bytes) {}

  /// Charges work: 1 for each evaluated node or visited item. Throws Error(kResourceExhausted).
  void Step(std::uint64_t n = 1) {
    steps_ += n;
    if (steps_ > max_steps_) {
      Fail(ErrorCode::kResourceExhausted,
           "the chat template takes more than {} steps; use --raw to pass the text as it stands",
           max_steps_);
    }
  }
  /// Charges a pass over bytes, a thousand of them like a step.
  void Scan(std::uint64_t bytes) { Step(bytes / 1024); }
  /// Charges bytes before they are made. Throws Error(kResourceExhausted).
  void Make(std::uint64_t bytes) {
    Scan(bytes);
    bytes_ += bytes;
    if (bytes_ > max_bytes_) {
      Fail(ErrorCode::kResourceExhausted,
           "the chat template makes more than {} bytes of text; use --raw to pass the text as it "
           "stands",
           max_bytes_);
    }
  }

 private:
  std::uint64_t max_steps_, max_bytes_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace kvant::jinja
