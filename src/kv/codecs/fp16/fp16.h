// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Codec "fp16": rows kept as IEEE binary16, 10 mantissa bits, largest finite 65504.
// Layout, rounding and byte counts: kv/families/plain16/plain16.h.
#pragma once

#include <cstdint>
#include <span>

#include "kv/method.h"

namespace kvant::fp16 {

const CodecRecord& GetCodec();

/// Is the stored number finite (exponent not all ones)?
constexpr bool IsFiniteBits(std::uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

namespace neon {
const KernelSet& Kernels();
}
namespace avx2 {
const KernelSet& Kernels();
}
namespace avx512 {
const KernelSet& Kernels();
}

}  // namespace kvant::fp16
