// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Which instruction set the CPU kernels use: found at run time, forced by name, never chosen silently.
//
// A name that users see ("scalar", "neon", "avx2", "avx512") stands for a set of features:
//   scalar   the baseline of the compiler's target
//   neon     AArch64: Advanced SIMD with dot products (FEAT_DotProd)
//   avx2     AVX2, FMA, F16C
//   avx512   AVX-512 F, BW, DQ, VL and VNNI on top of avx2
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvant {

enum class Isa : std::uint8_t { kScalar, kNeon, kAvx2, kAvx512 };

/// "scalar", "neon", "avx2", "avx512".
std::string_view IsaName(Isa isa);
/// Does this processor (and this build) run it?
bool IsaSupported(Isa isa);
/// Dot products of bfloat16 pairs (AVX512_BF16).
bool HasBFloat16Dots();
/// Products of bfloat16 tiles (AMX_BF16): the processor has them, the system saves their registers and let
/// this process use them, which is asked for here.
bool HasBFloat16Tiles();
/// Those that this build has kernels for (neon or the AVX ones, by the architecture), slowest first.
std::span<const Isa> AllIsas();
/// The supported ones, slowest first; never empty.
std::span<const Isa> SupportedIsas();
/// The Isa of a --kernel value; "auto" is the fastest supported one. Throws kUnsupported for one that
/// this processor or build does not run and kInvalidArgument for an unknown name; both say what is allowed.
Isa ResolveIsa(std::string_view kernel);

}  // namespace kvant
