// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The forward pass once more, in plain double precision: no cache, no kernels, no threads,
// and no code in common with src beyond reading the file. Slow by design; for short token lists in
// tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llm/gguf.h"

namespace kvant::test {

/// Logits of every position: [n_token][n_vocab]. Token i stands at position i; ids must be inside
/// the vocabulary. Weights are the decoded ones, nothing is rounded below double. Throws Error
/// where the file lacks a key or a tensor (KVANT_CHECK for shapes that contradict each other).
std::vector<std::vector<double>> ReferenceLogits(const GgufFile& file,
                                                 std::span<const std::int32_t> ids);

/// -ln of the probability that softmax(logits) gives to `id`.
double NegativeLogLikelihood(std::span<const double> logits, std::int32_t id);

}  // namespace kvant::test
