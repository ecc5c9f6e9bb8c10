// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// product: one token times matrices of one weight type, as a decode step multiplies them.
#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"
#include "bench/micro/bench.h"
#include "llm/matmul.h"

namespace kvant::micro {
namespace {

// Of the weights that one iteration reads at least: far beyond what a core keeps to itself. They are as many as
// the read buffer has: a last-level cache may hold a part of either.
constexpr std::uint64_t kProductBytes = std::uint64_t{128} << 20;

struct ProductShape {
  std::size_t n_cols, n_rows;
};
// Both of whole blocks of every type: as small as in a model of 135 M parameters, as large as in one of 8 B.
constexpr ProductShape kProductShapes[] = {{768, 576}, {4096, 4096}};

// Rows of a file with small positive scales: bytes below 0x30 make no half above 0.125 and none that is not
// a number. Plain weights are kept from becoming subnormal, which would be slow.
std::vector<std::byte> RandomRows(WeightType type, const ProductShape& shape, SplitMix64& rng) {
  const WeightTypeInfo& info = InfoOf(type);
  std::vector<std::byte> rows(shape.n_rows * RowBytes(type, shape.n_cols));
  for (std::byte& b : rows) b = static_cast<std::byte>(rng.Below(0x30));
  if (info.block_values == 1) {
    for (std::size_t i = info.block_bytes - 1; i < rows.size(); i += info.block_bytes) {
      rows[i] = std::byte{0x3c};
    }
  }
  return rows;
}

// Copies of one matrix, which are read one after another.
struct ProductRig {
  std::vector<WeightMatrix> matrices;
  std::uint64_t bytes = 0;
  Buffer<float> x, y;
  std::vector<Isa> checked;

  ProductRig(WeightType type, const ProductShape& shape, std::uint64_t total, ThreadPool& threads)
      : x(shape.n_cols, MemoryTag::kOther), y(shape.n_rows, MemoryTag::kOther) {
    SplitMix64 rng(20252);
    for (float& value : x.span()) value = static_cast<float>(rng.Normal());
    const std::vector<std::byte> rows = RandomRows(type, shape, rng);
    while (bytes < total) {
      matrices.push_back(
          WeightMatrix::FromRows(type, shape.n_rows, shape.n_cols, rows, threads));
      bytes += matrices.back().bytes();
    }
  }

  void Multiply(Matmul& matmul, const WeightMatrix& matrix, ThreadPool& threads) {
    const ProductTarget target[] = {{&matrix, {y.data(), 1, y.size()}}};
    matmul.Run(target, {x.data(), 1, x.size()}, threads);
  }

  // Why the answer is not that of the scalar kernel, bit for bit; empty where it is.
  std::string Check(Isa isa, ThreadPool& threads) {
    if (std::find(checked.begin(), checked.end(), isa) != checked.end()) return {};
    std::vector<float> answers[2];
    for (const Isa which : {Isa::kScalar, isa}) {
      Matmul matmul(which, threads.n_threads(), 1, x.size(), false);
      Multiply(matmul, matrices[0], threads);
      answers[which == isa].assign(y.data(), y.data() + y.size());
    }
    for (std::size_t i = 0; i < y.size() && isa != Isa::kScalar; ++i) {
      if (std::bit_cast<std::uint32_t>(answers[0][i]) ==
          std::bit_cast<std::uint32_t>(answers[1][i])) {
        continue;
      }
      return fmt::format("output {} is {} and {} in the scalar kernel", i, answers[1][i],
                         answers[0][i]);
    }
    checked.push_back(isa);
    return {};
  }
};

void RegisterProduct(Bench& bench, WeightType type, const ProductShape& shape, Isa isa,
                     std::size_t n_threads) {
  const auto run = [&bench, type, shape, isa, n_threads](benchmark::State& state) {
    // One set of matrices at a time: all types together would not fit into memory everywhere.
    static std::unique_ptr<ProductRig> rig;
    static WeightType rig_type;
    static std::size_t rig_cols = 0;
    ThreadPool& threads = bench.threads(n_threads);
    if (rig_cols != shape.n_cols || rig_type != type) {
      rig.reset();
      rig = std::make_unique<ProductRig>(type, shape, bench.read_bytes, threads);
      rig_type = type;
      rig_cols = shape.n_cols;
    }
    if (const std::string error = rig->Check(isa, threads); !error.empty()) {
      state.SkipWithError(error.c_str());
      return;
    }
    Matmul matmul(isa, n_threads, 1, shape.n_cols, false);
    const Work work = {.bytes = static_cast<double>(rig->bytes), .n_threads = n_threads};
    TimeLoop(bench, work, state, [&] {
      for (const WeightMatrix& matrix : rig->matrices) rig->Multiply(matmul, matrix, threads);
    });
  };
  const std::string name =
      fmt::format("product/{}/{}/{}x{}/t{}", InfoOf(type).name, IsaName(isa), shape.n_cols,
                  shape.n_rows, n_threads);
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMillisecond);
}

}  // namespace

void RegisterProductRows(Bench& bench) {
  bench.read_bytes = std::max(bench.read_bytes, kProductBytes);
  for (const WeightTypeInfo& info : WeightTypes()) {
    for (const ProductShape& shape : kProductShapes) {
      for (const Isa isa : bench.options.isas) {
        for (const std::size_t n : bench.options.threads) {
          RegisterProduct(bench, info.type, shape, isa, n);
        }
      }
    }
  }
}

}  // namespace kvant::micro
