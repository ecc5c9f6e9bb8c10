// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/matmul.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kMaxTargets = 3;  // of one product
// Panels of a work item: the first bound makes claiming an item cheap beside reading it, the
// second holds its outputs.
constexpr std::size_t kItemBytes = 64 << 10;
constexpr std::size_t kItemPanels = 16;

// Panels cut into items of equal size, as many for each thread.
class PanelSplit {
 public:
  PanelSplit(std::size_t n_panels, std::size_t bytes, std::size_t n_threads) : n_panels_(n_panels) {
    const std::size_t wanted = std::max(bytes / kItemBytes, n_panels / kItemPanels) / n_threads + 1;
    n_items_ = std::min(wanted * n_threads, n_panels);
  }
  std::size_t n_items() const { return n_items_; }
  std::size_t begin(std::size_t item) const { return item * n_panels_ / n_items_; }

 private:
  std::size_t n_panels_, n_items_;
};

// Outputs [first_row, first_row + n) from panels to the target.
void StoreRows(const float* rows, std::size_t first_row, std::size_t n,
               const ProductTarget& target) {
  float* to = target.output.data + first_row;
  if (target.add) {
    for (std::size_t i = 0; i < n; ++i) to[i] += rows[i];
  } else {
    std::copy_n(rows, n, to);
  }
}

bool IsQuantized(const WeightMatrix& weights) {
  return LayoutOf(weights.type()).block_columns != 0;
}

}  // namespace

Matmul::Matmul(Isa isa, std::size_t n_threads, std::size_t max_tokens, std::size_t max_cols,
               bool exact, PrefillKind prefill)
    : kernels_(&MatmulKernelsOf(isa)),
      max_tokens_(max_tokens),
      exact_(exact),
      prefill_(isa, prefill, n_threads, max_tokens, max_cols),
      digits_(exact ? 0 : max_cols / kSubColumns, MemoryTag::kScratch) {
  constexpr std::size_t kRows = (kItemPanels + 1) * kPanelRows;
  for (std::size_t i = 0; i < n_threads; ++i) {
    workers_.push_back({Buffer<float>(kRows, MemoryTag::kScratch),
                        Buffer<float>(kRows, MemoryTag::kScratch)});
  }
}

Matmul::OneInput Matmul::Prepare(std::span<const WeightMatrix* const> weights, const float* x) {
  if (exact_ || !std::any_of(weights.begin(), weights.end(),
                             [](const WeightMatrix* w) { return IsQuantized(*w); })) {
    return {x, nullptr};
  }
  kernels_->to_digits(x, weights[0]->n_cols() / kSubColumns, digits_.data());
  return {x, digits_.data()};
}

void Matmul::PanelsTimes(const WeightMatrix& weights, std::size_t panel, std::size_t n_panels,
                         const OneInput& input, float* y) const {
  if (input.digits != nullptr && IsQuantized(weights)) {
    kernels_->mat_vec_digits(weights.type(), weights.panel(panel), n_panels, weights.n_cols(),
                             input.digits, y);
  } else {
    kernels_->mat_vec(weights.type(), weights.panel(panel), n_panels, weights.n_cols(), input.x, y);
  }
}

// The panels of all targets in a row.
void Matmul::RunOne(std::span<const ProductTarget> targets, const float* x, ThreadPool& threads) {
  std::size_t n_panels = 0, bytes = 0;
  std::array<const WeightMatrix*, kMaxTargets> weights;
  KVANT_CHECK(targets.size() <= weights.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    weights[i] = targets[i].weights;
    n_panels += weights[i]->n_panels();
    bytes += weights[i]->bytes();
  }
  const OneInput input = Prepare(std::span(weights).first(targets.size()), x);
  const PanelSplit split(n_panels, bytes, threads.n_threads());
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    float* rows = workers_[thread].rows.data();
    std::size_t first = split.begin(item), left = split.begin(item + 1) - first;
    for (const ProductTarget& target : targets) {
      const std::size_t has = target.weights->n_panels();
      if (first >= has) {
        first -= has;
        continue;
      }
      const std::size_t n = std::min(left, has - first);
      PanelsTimes(*target.weights, first, n, input, rows);
      const std::size_t row = first * kPanelRows;
      StoreRows(rows, row, std::min(n * kPanelRows, target.weights->n_rows() - row), target);
      left -= n;
      if (left == 0) return;
      first = 0;
    }
  };
  threads.ParallelFor(split.n_items(), multiply);
}

void Matmul::Run(std::span<const ProductTarget> targets, MatrixView<const float> input,
                 ThreadPool& threads) {
  KVANT_CHECK(input.n_rows <= max_tokens_);
  if (input.n_rows == 1) return RunOne(targets, input.data, threads);
  prefill_.Run(targets, input, threads);
}

void Matmul::RunGated(const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                      MatrixView<const float> input, MatrixView<float> output,
                      ThreadPool& threads) {
  KVANT_CHECK(input.n_rows <= max_tokens_ && gate.n_rows() == up.n_rows());
  if (input.n_rows > 1) return prefill_.RunGated(gate, up, activation, input, output, threads);
  const auto activate =
      activation == Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_mul;
  const ProductTarget target = {.weights = &gate, .output = output, .add = false};
  const WeightMatrix* both[] = {&gate, &up};
  const OneInput one = Prepare(both, input.data);
  const PanelSplit split(gate.n_panels(), gate.bytes() + up.bytes(), threads.n_threads());
  const auto multiply = [&](std::size_t item, std::size_t thread) {
    Worker& worker = workers_[thread];
    const std::size_t first = split.begin(item), n = split.begin(item + 1) - first;
    PanelsTimes(gate, first, n, one, worker.rows.data());
    PanelsTimes(up, first, n, one, worker.up_rows.data());
    activate(worker.rows.data(), worker.up_rows.data(), n * kPanelRows);
    const std::size_t row = first * kPanelRows;
    StoreRows(worker.rows.data(), row, std::min(n * kPanelRows, gate.n_rows() - row), target);
  };
  threads.ParallelFor(split.n_items(), multiply);
}

}  // namespace kvant
