// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/codebook.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <tuple>

#include "base/error.h"
#include "kv/families/scalar_lut/lloyd_max.h"
#include "kv/families/scalar_lut/upstream_tables.h"

namespace kvant::scalar_lut {
namespace {

// What one stored code stands for: the y it covers (all in one interval) and the exact level.
struct Cell {
  std::uint32_t code = 0;
  double lo = 0;
  double hi = 0;
  double level = 0;
};

std::vector<float> ToFloat(std::span<const double> values) {
  std::vector<float> floats(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) floats[i] = static_cast<float>(values[i]);
  return floats;
}

// Chooses the integers and their step, and computes the distortion of the exact levels.
//
// All integers of a table share one step. With 8-bit integers the largest level is not always put
// at 127: a somewhat larger step may let all levels fall nearer to a multiple, and there are few
// enough of them to try. Levels off by e change the distortion by the sum of e^2 mass - 2 e first;
// the second term is zero for centroids, and may have either sign for kUpstream, where a gain is as
// wrong as a loss.
void FinishLevels(const Density& density, const std::vector<Cell>& cells, Codebook& book) {
  std::vector<Moments> moments;
  double largest = 0;
  book.distortion = 0;
  for (const Cell& cell : cells) {
    moments.push_back(density.Over(cell.lo, cell.hi, cell.level));
    book.distortion += moments.back().second;
    largest = std::max(largest, std::abs(cell.level));
  }
  const bool bytes = book.bits() <= 4;
  const double top = bytes ? 127 : 32767;
  double best = INFINITY;
  for (double scale = top; scale >= (bytes ? 96.0 : top); scale -= 0.125) {
    const float step = static_cast<float>(largest / scale);
    double square = 0;
    double linear = 0;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const double off = std::round(cells[i].level / step) * step - cells[i].level;
      square += off * off * moments[i].mass;
      linear += 2 * off * moments[i].first;
    }
    const double change = square + std::abs(linear);
    // A float step may be a hair too small for the largest integer.
    if (change < best && std::round(largest / step) <= top) {
      best = change;
      book.step = step;
    }
  }
  KVANT_CHECK(book.step > 0);
  book.levels.assign(cells.size(), 0);
  book.integer_levels.assign(cells.size(), 0);
  for (const Cell& cell : cells) {
    const double integer = std::round(cell.level / book.step);
    book.integer_levels[cell.code] = static_cast<std::int16_t>(integer);
    book.levels[cell.code] = static_cast<float>(integer) * book.step;
  }
}

void BuildNested(std::size_t head_dim, Codebook& book) {
  const Density density = Density::Sphere(head_dim);
  const std::size_t runs = std::size_t{1} << book.bits1;
  const std::size_t run = std::size_t{1} << book.bits2;
  const std::vector<double> levels = LloydMaxLevels(density, runs * run);
  const std::vector<double> bounds = Midpoints(levels);
  book.bounds = ToFloat(bounds);
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    cells.push_back({.code = StoredCode(static_cast<std::uint32_t>(i), book.bits()),
                     .lo = i == 0 ? -density.Support() : bounds[i - 1],
                     .hi = i < bounds.size() ? bounds[i] : density.Support(),
                     .level = levels[i]});
    if (i % run + 1 == run) {
      if (i < bounds.size()) book.bounds1.push_back(book.bounds[i]);
    } else if (book.bits2 > 0) {
      book.bounds2.push_back(book.bounds[i]);
    }
  }
  // The centroid of a run; the left half mirrors the right one exactly.
  book.levels1.assign(runs, 0);
  for (std::size_t i = runs / 2; i < runs; ++i) {
    double level = levels[i * run];
    if (run > 1) {
      const Moments all = density.Over(cells[i * run].lo, cells[i * run + run - 1].hi, 0);
      level = all.first / all.mass;
    }
    book.levels1[i] = static_cast<float>(level);
    book.levels1[runs - 1 - i] = -book.levels1[i];
  }
  FinishLevels(density, cells, book);
}

void BuildTwoStage(std::size_t head_dim, Codebook& book) {
  const Density density = Density::Sphere(head_dim);
  const UpstreamTable stage1 = UpstreamStage1(head_dim, book.bits1);
  UpstreamTable stage2;
  if (book.kind == CodebookKind::kUpstream) {
    stage2 = UpstreamStage2(head_dim, book.bits2);
  } else {
    const Density residual = Density::Residual(head_dim, stage1.levels, stage1.bounds);
    stage2.levels = LloydMaxLevels(residual, std::size_t{1} << book.bits2);
    stage2.bounds = Midpoints(stage2.levels);
  }
  book.levels1 = ToFloat(stage1.levels);
  book.bounds1 = ToFloat(stage1.bounds);
  book.levels2 = ToFloat(stage2.levels);
  book.bounds2 = ToFloat(stage2.bounds);

  std::vector<Cell> cells;
  for (std::size_t i = 0; i < stage1.levels.size(); ++i) {
    const double lo1 = i == 0 ? -density.Support() : stage1.bounds[i - 1];
    const double hi1 = i < stage1.bounds.size() ? stage1.bounds[i] : density.Support();
    const double middle = stage1.levels[i];
    for (std::size_t j = 0; j < stage2.levels.size(); ++j) {
      const double lo2 = j == 0 ? lo1 : middle + stage2.bounds[j - 1];
      const double hi2 = j < stage2.bounds.size() ? middle + stage2.bounds[j] : hi1;
      cells.push_back({.code = StoredCode(static_cast<std::uint32_t>(i), book.bits1) << book.bits2 |
                               StoredCode(static_cast<std::uint32_t>(j), book.bits2),
                       .lo = std::max(lo1, lo2),
                       .hi = std::min(hi1, hi2),
                       .level = middle + stage2.levels[j]});
    }
  }
  FinishLevels(density, cells, book);
}

void CheckArguments(CodebookKind kind, unsigned bits1, unsigned bits2, std::size_t head_dim) {
  const unsigned least2 = kind == CodebookKind::kNested ? 0 : 1;
  if (bits1 < 1 || bits1 > 8 || bits2 < least2 || bits2 > 4 || bits1 + bits2 > 8) {
    Fail(ErrorCode::kInvalidArgument,
         "a scalar codebook of {}+{} bits was asked for; stage 1 takes 1 to 8 bits, stage 2 {} to "
         "4, "
         "both together at most 8",
         bits1, bits2, least2);
  }
  if (head_dim < 16 || head_dim > 1024) {
    Fail(ErrorCode::kInvalidArgument,
         "a scalar codebook for head_dim {} was asked for; allowed are 16 to 1024", head_dim);
  }
}

}  // namespace

std::shared_ptr<const Codebook> CodebookFor(CodebookKind kind, unsigned bits1, unsigned bits2,
                                            std::size_t head_dim) {
  using Key = std::tuple<CodebookKind, unsigned, unsigned, std::size_t>;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const Codebook>> books;

  CheckArguments(kind, bits1, bits2, head_dim);
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<const Codebook>& kept = books[Key{kind, bits1, bits2, head_dim}];
  if (kept == nullptr) {
    const auto book = std::make_shared<Codebook>();
    book->kind = kind;
    book->bits1 = bits1;
    book->bits2 = bits2;
    if (kind == CodebookKind::kNested) {
      BuildNested(head_dim, *book);
    } else {
      BuildTwoStage(head_dim, *book);
    }
    kept = book;
  }
  return kept;
}

}  // namespace kvant::scalar_lut
