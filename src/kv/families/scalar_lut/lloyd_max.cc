// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/lloyd_max.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace kvant::scalar_lut {
namespace {

// Gauss-Legendre nodes per panel, and the widest panel. p is close to a normal density, whose 20th
// derivative makes the error of one panel about 1e-18: no panel needs a test for convergence.
constexpr std::size_t kNodes = 10;
constexpr double kPanel = 0.75;

struct GaussLegendre {
  std::array<double, kNodes> node;  // in (-1, 1)
  std::array<double, kNodes> weight;
};

// Newton on the Legendre polynomial, from the usual cosine estimate of its roots.
GaussLegendre MakeGaussLegendre() {
  GaussLegendre rule;
  for (std::size_t i = 0; i < kNodes; ++i) {
    double x = std::cos(std::numbers::pi * (static_cast<double>(i) + 0.75) / (kNodes + 0.5));
    double slope = 1;
    for (int step = 0; step < 8; ++step) {
      double before = 1;
      double value = x;
      for (std::size_t k = 2; k <= kNodes; ++k) {
        const double order = static_cast<double>(k);
        const double next = ((2 * order - 1) * x * value - (order - 1) * before) / order;
        before = value;
        value = next;
      }
      slope = kNodes * (x * value - before) / (x * x - 1);
      x -= value / slope;
    }
    rule.node[i] = x;
    rule.weight[i] = 2 / ((1 - x * x) * slope * slope);
  }
  return rule;
}

const GaussLegendre& Rule() {
  static const GaussLegendre rule = MakeGaussLegendre();
  return rule;
}

// Right half of a symmetric quantizer: levels 0 < l[0] < ... < l[m-1], cell i between bound i and
// i + 1, bound 0 = 0, bound m = the end of the density.
class HalfTable {
 public:
  HalfTable(const Density& density, std::vector<double> levels)
      : density_(&density), levels_(std::move(levels)) {
    Refresh();
  }

  const std::vector<double>& levels() const { return levels_; }
  double Bound(std::size_t i) const {
    if (i == 0) return 0;
    return i == levels_.size() ? density_->Support() : (levels_[i - 1] + levels_[i]) / 2;
  }
  /// Largest distance of a level from the centroid of its cell.
  double Error() const { return error_; }
  /// Whether the levels ascend between 0 and the end of the density, with mass in every cell.
  bool Valid() const { return valid_; }

  /// Every level moved to the centroid of its cell.
  std::vector<double> LloydStep() const {
    std::vector<double> next = levels_;
    for (std::size_t i = 0; i < next.size(); ++i) next[i] += cells_[i].first / cells_[i].mass;
    return next;
  }
  /// Newton's step for first moment of cell i about level i = 0, a tridiagonal system. Empty where
  /// the distortion is not convex: Newton would be drawn to a saddle there.
  std::vector<double> NewtonStep() const;

 private:
  void Refresh() {
    cells_.resize(levels_.size());
    error_ = 0;
    valid_ = levels_.front() > 0 && levels_.back() < density_->Support();
    for (std::size_t i = 0; i < levels_.size() && valid_; ++i) {
      cells_[i] = density_->Over(Bound(i), Bound(i + 1), levels_[i]);
      valid_ = cells_[i].mass > 0 && (i == 0 || levels_[i] > levels_[i - 1]);
      if (valid_) error_ = std::max(error_, std::abs(cells_[i].first / cells_[i].mass));
    }
  }

  const Density* density_;
  std::vector<double> levels_;
  std::vector<Moments> cells_;
  double error_ = 0;
  bool valid_ = false;
};

std::vector<double> HalfTable::NewtonStep() const {
  const std::size_t m = levels_.size();
  // first_i = integral over cell i of (y - l_i) f. A bound moves by half of what each neighbour
  // moves.
  std::vector<double> below(m, 0.0);
  std::vector<double> diagonal(m);
  std::vector<double> above(m, 0.0);
  for (std::size_t i = 0; i < m; ++i) {
    diagonal[i] = -cells_[i].mass;
    if (i > 0) {
      below[i] = (levels_[i] - Bound(i)) * density_->At(Bound(i)) / 2;
      diagonal[i] += below[i];
    }
    if (i + 1 < m) {
      above[i] = (Bound(i + 1) - levels_[i]) * density_->At(Bound(i + 1)) / 2;
      diagonal[i] += above[i];
    }
  }
  // Thomas elimination of  J step = -first.
  std::vector<double> step(m);
  for (std::size_t i = 0; i < m; ++i) {
    const double factor = i > 0 ? below[i] / diagonal[i - 1] : 0.0;
    if (i > 0) diagonal[i] -= factor * above[i - 1];
    if (diagonal[i] >= 0) return {};
    step[i] = -cells_[i].first - (i > 0 ? factor * step[i - 1] : 0.0);
  }
  for (std::size_t i = m; i-- > 0;) {
    step[i] = (step[i] - (i + 1 < m ? above[i] * step[i + 1] : 0.0)) / diagonal[i];
  }
  std::vector<double> next = levels_;
  for (std::size_t i = 0; i < m; ++i) next[i] += step[i];
  return next;
}

// Ends of `cells` equal shares of the cube root of the density on the right half, from 0 on: the
// cells that are optimal for many levels (Panter and Dite).
std::vector<double> CompandedEnds(const Density& density, std::size_t cells) {
  constexpr std::size_t kGrid = 1024;
  const double step = density.Support() / kGrid;
  std::vector<double> sum(kGrid + 1, 0.0);
  for (std::size_t i = 0; i < kGrid; ++i) {
    sum[i + 1] = sum[i] + std::cbrt(density.At((static_cast<double>(i) + 0.5) * step));
  }
  std::vector<double> ends(cells + 1, 0.0);
  std::size_t at = 0;
  for (std::size_t i = 1; i < cells; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(cells) * sum[kGrid];
    while (sum[at + 1] < share) ++at;
    const double inside = (share - sum[at]) / (sum[at + 1] - sum[at]);
    ends[i] = (static_cast<double>(at) + inside) * step;
  }
  ends[cells] = density.Support();
  return ends;
}

// The best m levels of the right half for a density of point masses, by dynamic programming: a
// residual has many stationary quantizers, and the distortion of poor ones is a third larger.
std::vector<double> BestHalfOnGrid(const Density& density, std::size_t m) {
  constexpr std::size_t kPoints = 384;
  const std::vector<double> ends = CompandedEnds(density, kPoints);
  std::array<std::array<double, kPoints + 1>, 3> sums =
      {};  // of mass, mass y, mass y^2 before a point
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double y = (ends[i] + ends[i + 1]) / 2;
    const double mass = density.At(y) * (ends[i + 1] - ends[i]);
    sums[0][i + 1] = sums[0][i] + mass;
    sums[1][i + 1] = sums[1][i] + mass * y;
    sums[2][i + 1] = sums[2][i] + mass * y * y;
  }
  const auto cell = [&](std::size_t power, std::size_t from, std::size_t to) {
    return sums[power][to] - sums[power][from];
  };
  // best[k][to]: least error of the points before `to` with k + 1 levels; from[k][to]: where the
  // last of their cells begins.
  std::vector<std::vector<double>> best(m, std::vector<double>(kPoints + 1, INFINITY));
  std::vector<std::vector<std::size_t>> from(m, std::vector<std::size_t>(kPoints + 1, 0));
  for (std::size_t k = 0; k < m; ++k) {
    for (std::size_t to = k + 1; to <= kPoints; ++to) {
      for (std::size_t begin = k; begin < (k == 0 ? 1 : to); ++begin) {
        const double mass = cell(0, begin, to);
        if (mass <= 0) continue;
        const double error = cell(2, begin, to) - cell(1, begin, to) * cell(1, begin, to) / mass +
                             (k == 0 ? 0.0 : best[k - 1][begin]);
        if (error < best[k][to]) {
          best[k][to] = error;
          from[k][to] = begin;
        }
      }
    }
  }
  std::vector<double> levels(m);
  std::size_t to = kPoints;
  for (std::size_t k = m; k-- > 0; to = from[k][to]) {
    levels[k] = cell(1, from[k][to], to) / cell(0, from[k][to], to);
  }
  return levels;
}

std::vector<double> CompandedHalf(const Density& density, std::size_t m) {
  const std::vector<double> ends = CompandedEnds(density, 2 * m);
  std::vector<double> levels(m);
  for (std::size_t i = 0; i < m; ++i) levels[i] = ends[2 * i + 1];
  return levels;
}

}  // namespace

Density::Density(std::size_t head_dim) : d_(static_cast<double>(head_dim)) {
  KVANT_CHECK(head_dim >= 4);
  // Beyond 13 the density is below exp(-13^2 / 2), less than 1e-36, whatever the head_dim.
  support_ = std::min(std::sqrt(d_), 13.0);
  // C is the inverse of the integral; lgamma would lose three digits at head_dim 1024.
  log_scale_ = 0;
  pieces_ = {{.shift = 0, .lo = -support_, .hi = support_}};
  log_scale_ = -std::log(2 * Over(0, support_, 0).mass);
}

Density Density::Sphere(std::size_t head_dim) { return Density(head_dim); }

Density Density::Residual(std::size_t head_dim, std::span<const double> levels,
                          std::span<const double> bounds) {
  Density density(head_dim);
  density.pieces_.clear();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double lo = i == 0 ? -density.support_ : bounds[i - 1];
    const double hi = i == bounds.size() ? density.support_ : bounds[i];
    density.pieces_.push_back({.shift = levels[i], .lo = lo - levels[i], .hi = hi - levels[i]});
  }
  return density;
}

double Density::Sphere1(double y) const {
  const double square = y * y / d_;
  if (square >= 1) return 0;
  return std::exp(log_scale_ + (d_ - 3) / 2 * std::log1p(-square));
}

double Density::At(double y) const {
  double sum = 0;
  for (const Piece& piece : pieces_) {
    if (y > piece.lo && y < piece.hi) sum += Sphere1(y + piece.shift);
  }
  return sum;
}

double Density::Support() const {
  double support = 0;
  for (const Piece& piece : pieces_) support = std::max(support, piece.hi);
  return support;
}

Moments Density::Over(double lo, double hi, double about) const {
  const GaussLegendre& rule = Rule();
  Moments sum;
  for (const Piece& piece : pieces_) {
    const double from = std::max(lo, piece.lo);
    const double to = std::min(hi, piece.hi);
    if (from >= to) continue;
    const double panels = std::ceil((to - from) / kPanel);
    const double half = (to - from) / panels / 2;
    for (double panel = 0; panel < panels; ++panel) {
      const double middle = from + (2 * panel + 1) * half;
      for (std::size_t i = 0; i < kNodes; ++i) {
        const double y = middle + half * rule.node[i];
        const double mass = half * rule.weight[i] * Sphere1(y + piece.shift);
        sum.mass += mass;
        sum.first += mass * (y - about);
        sum.second += mass * (y - about) * (y - about);
      }
    }
  }
  return sum;
}

std::vector<double> LloydMaxLevels(const Density& density, std::size_t n) {
  KVANT_CHECK(n >= 2 && n % 2 == 0);
  constexpr double kConverged = 1e-13;
  constexpr int kMaxSteps = 20000;
  HalfTable table(density, density.LogConcave() ? CompandedHalf(density, n / 2)
                                                : BestHalfOnGrid(density, n / 2));
  KVANT_CHECK(table.Valid());
  // Newton needs a few steps near the solution, but may overshoot far from it and may jump back and
  // forth where a residual's density has a step; Lloyd's steps never raise the distortion. So each
  // refused Newton step is followed by twice as many of Lloyd's as the one before.
  int lloyd_steps = 0;
  int next_burst = 1;
  for (int step = 0; step < kMaxSteps && table.Error() > kConverged; ++step) {
    if (lloyd_steps > 0) {
      table = HalfTable(density, table.LloydStep());
      --lloyd_steps;
      continue;
    }
    std::vector<double> next = table.NewtonStep();
    if (!next.empty()) {
      HalfTable newton(density, std::move(next));
      if (newton.Valid() && newton.Error() < table.Error() / 2) {
        table = std::move(newton);
        continue;
      }
    }
    lloyd_steps = next_burst;
    next_burst *= 2;
  }
  KVANT_CHECK(table.Error() <= 1e-12);
  std::vector<double> levels(n);
  for (std::size_t i = 0; i < n / 2; ++i) {
    levels[n / 2 + i] = table.levels()[i];
    levels[n / 2 - 1 - i] = -table.levels()[i];
  }
  return levels;
}

std::vector<double> Midpoints(std::span<const double> levels) {
  std::vector<double> bounds(levels.size() - 1);
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = (levels[i] + levels[i + 1]) / 2;
  return bounds;
}

}  // namespace kvant::scalar_lut
