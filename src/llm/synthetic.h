// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Models with random weights in the true shape of real ones, made in memory: what they cost in time and bytes
// is what the real model costs, what they say means nothing. Their rows are made while the model is loaded, so
// the weights exist once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "llm/gguf.h"
#include "llm/synthetic_geometry.h"

namespace kvant {

/// What every output that used such a model has to say.
inline constexpr std::string_view kSyntheticNotice = "synthetic weights: speed and memory only";

/// A synthetic model as if it were a file. Matrices are of 4 bits (SyntheticGeometry::weights); the output
/// head, which a tied model uses as its embedding, is Q6_K, or Q8_0 where a row is no whole 256, as in real
/// files. Weights are scaled so that activations stay of unit size and logits spread by about 2.5. Each byte of
/// text is a token (ids 0 to 255), every other token reads as its number in brackets, none ends an answer, and
/// the chat template writes the messages as they are.
GgufFile MakeSynthetic(const SyntheticGeometry& geometry);

/// The synthetic model that "synthetic:..." describes, or the file of that path. Throws as ParseSynthetic or
/// GgufFile::Open.
GgufFile OpenModel(const std::string& reference);

/// kSyntheticNotice for a synthetic model, else empty.
std::string_view ModelNotice(const GgufFile& file);

/// In place of FileFingerprint: another one for another shape, seed, or way of making weights.
std::uint64_t SyntheticFingerprint(const SyntheticGeometry& geometry);

}  // namespace kvant
