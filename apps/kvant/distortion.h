// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// How exactly the scalar codecs keep random directions: relative error and cosine measured through
// the kernels that a cache uses, beside what theory says (kvant methods --distortion). Random
// vectors say how good a code is, not how good a model stays: for that there is kvant eval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kv/method.h"

namespace kvant::cli {

/// Means over `n` rows x of independent standard normal numbers, x^ what is decoded.
struct MeasuredDistortion {
  double d = 0;        // mean of |x - x^|^2 / |x|^2
  double d_error = 0;  // standard error of that mean
  double cosine = 0;   // mean of <x, x^> / (|x| |x^|)
  std::size_t n = 0;
};

/// A codec with options as in the method grammar: "bits=2+2:scalar=norm".
struct CodecChoice {
  const CodecRecord* codec = nullptr;
  std::string options;
};

/// Encodes and decodes n seeded rows as keys of layer 0 with the codecs' kernels for `isa`, the
/// same rows for each choice. Throws Error for options or a head_dim that a codec refuses and for
/// an ISA that it has no kernels for.
std::vector<MeasuredDistortion> MeasureDistortion(std::span<const CodecChoice> choices,
                                                  std::size_t head_dim, std::size_t n,
                                                  std::uint64_t seed, Isa isa);

/// The least relative mean square error with which a uniformly random unit vector in `head_dim`
/// dimensions (at least 3) can be kept in `bits` (above 0, at most 12) bits a dimension, its length
/// not charged: Shannon's distortion-rate function. By symmetry the best test channel is the von
/// Mises-Fisher density exp(k <m, x>) around a reproduction of direction m and length A(k) = E<m,
/// x>; then D = 1 - A^2 and the rate is k A - log E exp(k <m, x>), the last mean over the uniform
/// x.
double SphereDistortionBound(std::size_t head_dim, double bits);

/// Every table of the scalar codecs at these head sizes: [] {codec, options, head_dim, d, d_error,
/// cosine, n, theory (of the table, before rounding), bound (SphereDistortionBound)}.
nlohmann::json DistortionRows(const std::vector<std::size_t>& head_dims, std::size_t n,
                              std::uint64_t seed);
/// The rows as a table for people.
std::string DistortionText(const nlohmann::json& rows);

}  // namespace kvant::cli
