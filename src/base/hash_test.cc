// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace kvant {
namespace {

std::uint64_t Of(const std::string& text) { return Hash64Of(std::as_bytes(std::span(text))); }

// Published values of XXH64 with seed 0; the last one is longer than a stripe.
TEST(Hash64, GivesTheValuesOfXxh64) {
  EXPECT_EQ(Of(""), 0xef46db3751d8e999u);
  EXPECT_EQ(Of("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(Of("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(Of("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

TEST(Hash64, PiecesMakeNoDifference) {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  const std::uint64_t whole = Hash64Of(bytes);
  for (const std::size_t piece : {1, 3, 8, 31, 32, 33, 64, 299}) {
    Hash64 hash;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      hash.Update(std::span(bytes).subspan(i, std::min(piece, bytes.size() - i)));
    }
    EXPECT_EQ(hash.Digest(), whole) << piece;
  }
}

TEST(Hash64, EveryBitAndTheLengthCount) {
  for (const std::size_t size : {1, 4, 7, 8, 31, 32, 45}) {
    std::vector<std::byte> bytes(size, std::byte{0});
    const std::uint64_t whole = Hash64Of(bytes);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      std::vector<std::byte> other = bytes;
      other[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_NE(Hash64Of(other), whole) << size << ", bit " << bit;
    }
    bytes.push_back(std::byte{0});
    EXPECT_NE(Hash64Of(bytes), whole) << size;
  }
}

}  // namespace
}  // namespace kvant
