// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Lloyd-Max quantizers in double precision for the density of one coordinate of a random direction,
// and for the error that a first quantizer leaves of it. CodebookFor (codebook.h) makes tables of
// these.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kvant::scalar_lut {

/// Integrals over an interval (lo, hi) of density f, about a point c.
struct Moments {
  double mass = 0;    // integral of f
  double first = 0;   // integral of (y - c) f
  double second = 0;  // integral of (y - c)^2 f
};

/// A density on a symmetric interval, symmetric about 0: one coordinate of a uniform unit vector
/// times sqrt(head_dim), p(y) = C (1 - y^2 / d)^((d - 3) / 2), or the residual that a quantizer
/// leaves of it.
class Density {
 public:
  /// p itself. head_dim is at least 4 (below, p is not bounded or not smooth inside).
  static Density Sphere(std::size_t head_dim);
  /// The density of y - levels[i], y drawn from p, i the cell of y: f(r) = sum over i of
  /// p(levels[i] + r) where that lies in cell i. levels [n], bounds [n - 1] ascending, both
  /// symmetric.
  static Density Residual(std::size_t head_dim, std::span<const double> levels,
                          std::span<const double> bounds);

  double At(double y) const;
  /// Moments over (lo, hi) about `about`; zero where lo >= hi.
  Moments Over(double lo, double hi, double about) const;
  /// f vanishes (or is below 1e-36) outside of (-Support(), Support()).
  double Support() const;
  /// Whether it is p itself, which has one stationary quantizer for each number of levels.
  bool LogConcave() const { return pieces_.size() == 1; }

 private:
  // Where y is in (lo, hi), the density holds p(y + shift).
  struct Piece {
    double shift;
    double lo;
    double hi;
  };

  explicit Density(std::size_t head_dim);
  double Sphere1(double y) const;

  double d_;
  double log_scale_;  // log C
  double support_;    // of p
  std::vector<Piece> pieces_;
};

/// The n levels (n even), ascending and exactly symmetric, of a quantizer in which every level is
/// the centroid of its cell and every bound the midpoint of its levels; solved until no level moves
/// by more than 1e-13. For Density::Sphere, whose logarithm is concave, there is one such
/// quantizer; for a residual it is the one reached from the best quantizer on a grid of 384 points.
/// Errors: kInternal when it does not converge.
std::vector<double> LloydMaxLevels(const Density& density, std::size_t n);

/// [n - 1] midpoints of n ascending levels.
std::vector<double> Midpoints(std::span<const double> levels);

}  // namespace kvant::scalar_lut
