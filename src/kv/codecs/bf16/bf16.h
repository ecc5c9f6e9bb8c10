// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Codec "bf16": rows kept as bfloat16, 7 mantissa bits, the range of float.
// Layout, rounding and byte counts: kv/families/plain16/plain16.h.
#pragma once

#include <cstdint>
#include <span>

#include "kv/method.h"

namespace kvant::bf16 {

const CodecRecord& GetCodec();

/// Is the stored number finite (exponent not all ones)?
constexpr bool IsFiniteBits(std::uint16_t bits) { return (bits & 0x7f80) != 0x7f80; }

namespace neon {
const KernelSet& Kernels();
}
namespace avx2 {
const KernelSet& Kernels();
}
namespace avx512 {
const KernelSet& Kernels();
}

}  // namespace kvant::bf16
