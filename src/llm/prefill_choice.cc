// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/prefill_choice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "backend/cpu/gemm_tile.h"
#include "base/child_probe.h"
#include "base/error.h"
#include "base/half.h"
#include "base/rng.h"
#include "llm/onednn_gemm.h"

namespace kvant {
namespace {

constexpr std::size_t kProbeDepth = 64;
constexpr std::size_t kMeasureDepth = 1024;
constexpr int kMeasureRounds = 12;

std::vector<std::uint16_t> RandomBf16(std::size_t n, SplitMix64& rng) {
  std::vector<std::uint16_t> numbers(n);
  for (std::uint16_t& x : numbers) x = FloatToBFloat16(static_cast<float>(rng.Normal())).bits;
  return numbers;
}

double Value(std::uint16_t bits) {
  return static_cast<double>(BFloat16ToFloat(BFloat16{bits}));
}

// A product and the same added to it, against sums in double. Products of two bfloat16 are exact in float;
// a sum of 128 of them in any order is off by less than 128 x 2^-23 of the sum of their sizes.
bool ProductIsRight() {
  OneDnnGemm gemm(1);
  gemm.Prepare(kProbeDepth);
  SplitMix64 rng(1);
  const auto a = RandomBf16(kGemmTokens * kProbeDepth, rng);
  const auto b = RandomBf16(kGemmRows * kProbeDepth, rng);
  std::vector<float> c(kGemmTokens * kGemmRows);
  gemm.Run(0, kProbeDepth, a.data(), b.data(), c.data(), false);
  gemm.Run(0, kProbeDepth, a.data(), b.data(), c.data(), true);
  for (std::size_t i = 0; i < kGemmTokens; ++i) {
    for (std::size_t j = 0; j < kGemmRows; ++j) {
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < kProbeDepth; ++k) {
        const double term = 2 * Value(a[i * kProbeDepth + k]) *
                            Value(b[(k / 2 * kGemmRows + j) * 2 + k % 2]);
        sum += term;
        size += std::abs(term);
      }
      const double error = std::abs(static_cast<double>(c[i * kGemmRows + j]) - sum);
      if (!(error <= size * 0x1p-16)) return false;
    }
  }
  return true;
}

std::string FindWhyNoBf16() {
  if (const std::string why = OneDnnGemm::WhyNotBuilt(); !why.empty()) return why;
  // oneDNN takes the tiles where it may; asking for permission is part of the check.
  if (!HasBFloat16Tiles() && !HasBFloat16Dots()) {
    return "this processor has neither AMX nor AVX-512 bfloat16 products that this process may use";
  }
  if (const std::string why = RunInChild(&ProductIsRight, 20); !why.empty()) {
    return "a trial product in a child process " + why;
  }
  return {};
}

// The shortest of some rounds; other work on the machine only makes them longer.
template <typename Body>
double ShortestSeconds(const Body& body) {
  double best = 1e9;
  for (int round = 0; round < kMeasureRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count());
  }
  return best;
}

struct Rates {
  double f32 = 0, bf16 = 0;    // GFLOP/s of one thread
  std::string implementation;  // of bf16
};

Rates Measure(Isa isa) {
  constexpr double kGiga = 2e-9 * kGemmTokens * kGemmRows * kMeasureDepth;
  SplitMix64 rng(2);
  Rates rates;
  std::vector<float> c(kGemmTokens * kGemmRows);
  {
    std::vector<float> a(kGemmTokens * kMeasureDepth), b(kGemmRows * kMeasureDepth);
    for (float& x : a) x = static_cast<float>(rng.Normal());
    for (float& x : b) x = static_cast<float>(rng.Normal());
    const GemmTileArgs args = {.a = a.data(), .a_stride = kMeasureDepth,
                               .b = b.data(), .b_stride = kGemmRows,
                               .c = c.data(), .c_stride = kGemmRows,
                               .n_rows = kGemmTokens, .k = kMeasureDepth, .n = kGemmRows,
                               .c_scale = nullptr, .c_scale_stride = 0};
    rates.f32 = kGiga / ShortestSeconds([&] { GemmTileOf(isa)(args); });
  }
  OneDnnGemm gemm(1);
  gemm.Prepare(kMeasureDepth);
  rates.implementation = gemm.Implementation(kMeasureDepth);
  const auto a = RandomBf16(kGemmTokens * kMeasureDepth, rng);
  const auto b = RandomBf16(kGemmRows * kMeasureDepth, rng);
  rates.bf16 = kGiga / ShortestSeconds([&] {
                 gemm.Run(0, kMeasureDepth, a.data(), b.data(), c.data(), false);
               });
  return rates;
}

const Rates& MeasuredRates() {
  static const Rates rates = Measure(SupportedIsas().back());
  return rates;
}

PrefillChoice F32(Isa isa, std::string reason) {
  return {PrefillKind::kF32, fmt::format("f32/{}", IsaName(isa)), std::move(reason)};
}

PrefillChoice Bf16(std::string reason) {
  const bool tiles = MeasuredRates().implementation.find("amx") != std::string::npos;
  return {PrefillKind::kBf16, fmt::format("bf16/onednn/{}", tiles ? "amx" : "avx512_bf16"),
          std::move(reason)};
}

PrefillChoice Fastest(Isa isa) {
  if (isa != SupportedIsas().back()) {
    return F32(isa, fmt::format("kernel {} was asked for", IsaName(isa)));
  }
  if (!WhyNoBf16().empty()) return F32(isa, "bf16 does not run: " + WhyNoBf16());
  const Rates& rates = MeasuredRates();
  if (rates.bf16 < kPrefillMargin * rates.f32) {
    return F32(isa, fmt::format("bf16 reached {:.0f} and f32 {:.0f} GFLOP/s on one thread, less than {} "
                                "times as much",
                                rates.bf16, rates.f32, kPrefillMargin));
  }
  return Bf16(fmt::format("{:.0f} against {:.0f} GFLOP/s of f32 on one thread", rates.bf16,
                          rates.f32));
}

}  // namespace

std::string_view PrefillKindName(PrefillKind kind) {
  return kind == PrefillKind::kF32 ? "f32" : "bf16";
}

const std::string& WhyNoBf16() {
  static const std::string why = FindWhyNoBf16();
  return why;
}

PrefillChoice ResolvePrefill(std::string_view prefill, Isa isa, bool exact) {
  if (prefill != "auto" && prefill != "f32" && prefill != "bf16") {
    Fail(ErrorCode::kInvalidArgument, "unknown prefill arithmetic '{}'; choose one of: auto, f32, bf16",
         prefill);
  }
  if (prefill == "f32") return F32(isa, "asked for");
  if (prefill == "auto") return exact ? F32(isa, "exact results were asked for") : Fastest(isa);
  if (exact) {
    Fail(ErrorCode::kInvalidArgument,
         "prefill arithmetic 'bf16' rounds and cannot be exact; leave out one of the two");
  }
  if (!WhyNoBf16().empty()) {
    Fail(ErrorCode::kUnsupported, "prefill arithmetic 'bf16' does not run: {}; choose auto or f32",
         WhyNoBf16());
  }
  return Bf16("asked for");
}

}  // namespace kvant
