// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tables of the published two-stage quantizer, made as it makes them, imprecisions included: a
// model density instead of the true one, a grid, a limit on iterations, binary16 values. Only for
// codebook=upstream and for stage 1 of codebook=fitted; lloyd_max.h computes what a table should
// be.
#pragma once

#include <cstddef>
#include <vector>

namespace kvant::scalar_lut {

/// Values are binary16 numbers in the published unit, a coordinate of a unit vector, times
/// sqrt(head_dim): the unit of codebook.h. Exactly symmetric.
struct UpstreamTable {
  std::vector<double> levels;  // [n] ascending
  std::vector<double> bounds;  // [n - 1] ascending, midpoints before rounding
};

/// Stage 1: N(0, 1/d) cut at 6 deviations from head_dim 64 up, the density of the sphere below.
UpstreamTable UpstreamStage1(std::size_t head_dim, unsigned bits);

/// Stage 2: a Laplace density cut at 8 scales, scale = sigma / sqrt(2), sigma = (sqrt(3 pi) / 2)
/// 4^-bits / sqrt(d). That is TurboQuant's upper bound of a mean square error with its constant
/// misread (sqrt(3) pi / 2 there), used as a deviation: several times narrower than the residual.
UpstreamTable UpstreamStage2(std::size_t head_dim, unsigned bits);

}  // namespace kvant::scalar_lut
