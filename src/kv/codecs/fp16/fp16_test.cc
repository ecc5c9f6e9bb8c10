// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/codecs/fp16/fp16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/half.h"
#include "kv/families/plain16/plain16.h"

namespace kvant::fp16 {
namespace {

// Every finite 16-bit pattern is stored as itself, in every slot order of the layout.
TEST(Fp16Codec, EveryFiniteNumberIsKeptBitForBit) {
  constexpr std::size_t kHeadDim = 64;
  const auto config = GetCodec().parse_config({});
  std::vector<std::uint16_t> finite;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (IsFiniteBits(static_cast<std::uint16_t>(bits))) finite.push_back(static_cast<std::uint16_t>(bits));
  }
  for (const KernelSet& set : GetCodec().kernels()) {
    if (!IsaSupported(set.isa)) continue;
    for (std::size_t first = 0; first < finite.size(); first += kBlockTokens * kHeadDim) {
      std::vector<float> rows(kBlockTokens * kHeadDim);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = HalfToFloat(Half{finite[(first + i) % finite.size()]});
      }
      std::vector<std::uint16_t> block(rows.size());
      const EncodeArgs args = {.config = config.get(),
                               .head_dim = kHeadDim,
                               .rows = rows.data(),
                               .row_stride = kHeadDim,
                               .n_rows = kBlockTokens,
                               .first = 0,
                               .block = reinterpret_cast<std::byte*>(block.data())};
      ASSERT_EQ(set.encode(Side::kKey, args), kBlockTokens);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t at = plain16::KeyOffset(i / kHeadDim, i % kHeadDim);
        ASSERT_EQ(block[at], finite[(first + i) % finite.size()]) << IsaName(set.isa);
      }
      ASSERT_EQ(set.encode(Side::kValue, args), kBlockTokens);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(block[i], finite[(first + i) % finite.size()]) << IsaName(set.isa);
      }
    }
  }
}

// The key layout is a bijection of token-major order.
TEST(Fp16Codec, TheKeyOrderIsABijection) {
  for (const std::size_t head_dim : {16, 64, 80, 256}) {
    std::vector<bool> used(kBlockTokens * head_dim, false);
    for (std::size_t token = 0; token < kBlockTokens; ++token) {
      for (std::size_t dim = 0; dim < head_dim; ++dim) {
        const std::size_t at = plain16::KeyOffset(token, dim);
        ASSERT_LT(at, used.size());
        ASSERT_FALSE(used[at]);
        used[at] = true;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::fp16
