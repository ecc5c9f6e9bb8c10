// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/upstream_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/half.h"

namespace kvant::scalar_lut {
namespace {

constexpr std::size_t kGridPoints = 10000;
constexpr int kMaxIterations = 500;
constexpr double kSmallestMove = 1e-9;

double RoundToHalf(double value) { return HalfToFloat(FloatToHalf(static_cast<float>(value))); }

// Point masses on a grid over [-support, support], ends included.
class Grid {
 public:
  template <typename DensityFunction>
  Grid(double support, DensityFunction density) : support_(support) {
    mass_.assign(kGridPoints + 1, 0.0);
    moment_.assign(kGridPoints + 1, 0.0);
    for (std::size_t i = 0; i < kGridPoints; ++i) {
      const double mass = density(Point(i));
      mass_[i + 1] = mass_[i] + mass;
      moment_[i + 1] = moment_[i] + mass * Point(i);
    }
  }

  double support() const { return support_; }
  /// Mean of the points in [lo, hi), or `otherwise` when they have no mass.
  double Centroid(double lo, double hi, double otherwise) const {
    const std::size_t from = FirstFrom(lo);
    const std::size_t to = FirstFrom(hi);
    const double mass = mass_[to] - mass_[from];
    return mass > 0 ? (moment_[to] - moment_[from]) / mass : otherwise;
  }

 private:
  double Spacing() const { return 2 * support_ / (kGridPoints - 1); }
  double Point(std::size_t i) const { return -support_ + static_cast<double>(i) * Spacing(); }
  // First point at or above x.
  std::size_t FirstFrom(double x) const {
    const double at = std::ceil((x + support_) / Spacing());
    return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(kGridPoints)));
  }

  double support_;
  std::vector<double> mass_;    // [kGridPoints + 1] before each point
  std::vector<double> moment_;  // [kGridPoints + 1]
};

// Lloyd's iteration from levels in the middle of n equal parts of the support.
std::vector<double> LloydOnGrid(const Grid& grid, std::size_t n) {
  std::vector<double> levels(n);
  for (std::size_t i = 0; i < n; ++i) {
    levels[i] = grid.support() * (static_cast<double>(2 * i + 1) / static_cast<double>(n) - 1);
  }
  for (int iteration = 0; iteration < kMaxIterations; ++iteration) {
    std::vector<double> next(n);
    double move = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double lo = i == 0 ? -INFINITY : (levels[i - 1] + levels[i]) / 2;
      const double hi = i + 1 == n ? INFINITY : (levels[i] + levels[i + 1]) / 2;
      next[i] = grid.Centroid(lo, hi, levels[i]);
      move = std::max(move, std::abs(next[i] - levels[i]));
    }
    levels = std::move(next);
    if (move < kSmallestMove) break;
  }
  return levels;
}

UpstreamTable Tabulate(const Grid& grid, unsigned bits, std::size_t head_dim) {
  const double root = std::sqrt(static_cast<double>(head_dim));
  const std::size_t n = std::size_t{1} << bits;
  const std::vector<double> solved = LloydOnGrid(grid, n);
  std::vector<double> levels(n);
  // Sums over the grid are symmetric but for their last bits.
  for (std::size_t i = 0; i < n; ++i) levels[i] = (solved[i] - solved[n - 1 - i]) / 2;
  UpstreamTable table;
  for (std::size_t i = 0; i < n; ++i) {
    table.levels.push_back(RoundToHalf(levels[i]) * root);
    if (i + 1 < n) table.bounds.push_back(RoundToHalf((levels[i] + levels[i + 1]) / 2) * root);
  }
  return table;
}

}  // namespace

UpstreamTable UpstreamStage1(std::size_t head_dim, unsigned bits) {
  const double d = static_cast<double>(head_dim);
  if (head_dim >= 64) {
    const Grid grid(6 / std::sqrt(d), [d](double x) { return std::exp(-x * x * d / 2); });
    return Tabulate(grid, bits, head_dim);
  }
  const Grid grid(1, [d](double x) { return std::pow(std::max(1 - x * x, 0.0), (d - 3) / 2); });
  return Tabulate(grid, bits, head_dim);
}

UpstreamTable UpstreamStage2(std::size_t head_dim, unsigned bits) {
  const double sigma = std::sqrt(3 * std::numbers::pi) / 2 *
                       std::pow(4.0, -static_cast<double>(bits)) /
                       std::sqrt(static_cast<double>(head_dim));
  const double scale = sigma / std::numbers::sqrt2;
  const Grid grid(8 * scale, [scale](double x) { return std::exp(-std::abs(x) / scale); });
  return Tabulate(grid, bits, head_dim);
}

}  // namespace kvant::scalar_lut
