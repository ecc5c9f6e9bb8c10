// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Which arithmetic the weight products of many tokens use: asked for by name, or the one that measures
// fastest on this processor. Never chosen silently: the choice has a name and a reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/cpu/isa.h"

namespace kvant {

enum class PrefillKind : std::uint8_t {
  kF32,   // own kernel: each output one chain of fused multiply-adds over the columns, as for one token
  kBf16,  // weights and activations rounded to bfloat16, sums in float (oneDNN)
};
/// "f32", "bf16".
std::string_view PrefillKindName(PrefillKind kind);

struct PrefillChoice {
  PrefillKind kind = PrefillKind::kF32;
  std::string name = "f32";  // with the code that runs: "f32/avx512", "bf16/onednn/amx"
  std::string reason;        // "1900 against 180 GFLOP/s ..."
};

/// Why kBf16 does not run on this processor in this build; empty where it does: the features are there
/// and a product in a child process gave the right numbers. Found once for the process.
const std::string& WhyNoBf16();

/// The choice for a --prefill value ("auto", "f32", "bf16"). "auto" measures both for some milliseconds, once
/// for the process, and takes bf16 where it is at least kPrefillMargin times faster; it stays with f32 where
/// `isa` is not the fastest one of this processor. `exact` allows f32 alone. Throws kUnsupported for bf16
/// where WhyNoBf16 says why, kInvalidArgument for an unknown name and for bf16 with `exact`.
PrefillChoice ResolvePrefill(std::string_view prefill, Isa isa, bool exact);

inline constexpr double kPrefillMargin = 1.5;

}  // namespace kvant
