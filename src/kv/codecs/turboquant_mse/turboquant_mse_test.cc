// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What is special to turboquant_mse: its bytes at every number of bits, and that its 4-bit code is the
// nested code of turboquant_rvq.
#include "kv/codecs/turboquant_mse/turboquant_mse.h"

#include <gtest/gtest.h>

#include "kv/registry.h"
#include "kvant/error.h"
#include "tests/support/seed.h"

namespace kvant::turboquant_mse {
namespace {

TEST(TurboQuantMse, ARowTakesItsBitsAndOneScalar) {
  for (std::size_t bits = 1; bits <= 8; ++bits) {
    for (const std::size_t head_dim : {64, 128, 256}) {
      for (const Side side : {Side::kKey, Side::kValue}) {
        const auto config = BindCodec(GetCodec(), "bits=" + std::to_string(bits),
                                      {.side = side, .layer = 0, .head_dim = head_dim});
        EXPECT_EQ(GetCodec().geometry(side, head_dim, *config).bytes_per_token, head_dim * bits / 8 + 2);
      }
    }
  }
}

std::vector<std::byte> Encode(const CodecRecord& codec, std::string_view options,
                              const std::vector<float>& rows, std::size_t head_dim) {
  const auto config = BindCodec(codec, options, {.side = Side::kKey, .layer = 2, .head_dim = head_dim});
  std::vector<std::byte> block(codec.geometry(Side::kKey, head_dim, *config).bytes);
  codec.kernels()[0].encode(Side::kKey, {.config = config.get(),
                                         .head_dim = head_dim,
                                         .rows = rows.data(),
                                         .row_stride = head_dim,
                                         .n_rows = kBlockTokens,
                                         .first = 0,
                                         .block = block.data()});
  return block;
}

TEST(TurboQuantMse, FourBitsAreTheNestedTwoPlusTwo) {
  constexpr std::size_t kHeadDim = 128;
  SplitMix64 rng = test::TestRng();
  std::vector<float> rows(kBlockTokens * kHeadDim);
  for (float& x : rows) x = static_cast<float>(rng.Normal());
  EXPECT_TRUE(Encode(GetCodec(), "bits=4", rows, kHeadDim) ==
              Encode(*FindCodec("turboquant_rvq"), "bits=2+2", rows, kHeadDim));
  EXPECT_TRUE(Encode(GetCodec(), "bits=4", rows, kHeadDim) ==
              Encode(*FindCodec("turboquant_rvq"), "bits=3+1", rows, kHeadDim));
}

TEST(TurboQuantMse, BadOptionsAreNamed) {
  const BindArgs args = {.side = Side::kKey, .layer = 0, .head_dim = 64};
  for (const char* options : {"bits=0", "bits=9", "bits=16", "bits=x", "scalar=max", "seed=1e3"}) {
    EXPECT_THROW(BindCodec(GetCodec(), std::string_view(options), args), Error) << options;
  }
}

}  // namespace
}  // namespace kvant::turboquant_mse
