// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/layouts/slab_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/seed.h"

namespace kvant {
namespace {

// Random takes and gives of several sizes and streams: zeroed, aligned, inside no other block.
TEST(SlabArena, BlocksAreZeroedAlignedAndApart) {
  SplitMix64 rng(test::TestSeed());
  SlabArena arena;
  struct Block {
    std::byte* data;
    std::uint64_t bytes;
  };
  std::vector<Block> blocks;
  constexpr std::uint64_t kSizes[] = {64, 1024, 4352, 16384, 300 * 1024, SlabArena::kMaxBlockBytes};
  for (int step = 0; step < 3000; ++step) {
    if (!blocks.empty() && rng.Below(5) < 2) {
      const std::size_t i = rng.Below(blocks.size());
      arena.Give(blocks[i].data, blocks[i].bytes);
      blocks[i] = blocks.back();
      blocks.pop_back();
      continue;
    }
    const std::uint64_t bytes =
        kSizes[rng.Below(100) < 95 ? rng.Below(4) : rng.Below(std::size(kSizes))];
    std::byte* data = arena.Take(bytes, rng.Below(4));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    ASSERT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(data, bytes, std::byte{0xa5});
    blocks.push_back({data, bytes});
  }
  std::map<std::byte*, std::uint64_t> sorted;
  std::uint64_t taken = 0;
  for (const Block& block : blocks) {
    sorted[block.data] = block.bytes;
    taken += block.bytes;
  }
  std::byte* end = nullptr;
  for (const auto& [data, bytes] : sorted) {
    ASSERT_GE(data, end);
    end = data + bytes;
  }
  EXPECT_GE(arena.reserved_bytes(), taken);
  for (const Block& block : blocks) arena.Give(block.data, block.bytes);
  EXPECT_EQ(arena.reserved_bytes(), 0u);
}

// Streams that grow in turn, as heads do: long stretches without a jump, little kept in reserve.
TEST(SlabArena, AStreamStaysTogetherAndReservesLittle) {
  constexpr std::uint64_t kBytes = 4352;
  constexpr std::size_t kStreams = 90, kBlocks = 512;
  SlabArena arena;
  std::vector<std::byte*> last(kStreams);
  std::size_t jumps = 0;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      std::byte* data = arena.Take(kBytes, stream);
      if (data != last[stream] + kBytes) ++jumps;
      last[stream] = data;
    }
    const double taken = static_cast<double>(kBytes * kStreams * (block + 1));
    ASSERT_LE(static_cast<double>(arena.reserved_bytes()), 1.3 * taken + 2.1e6) << block;
  }
  EXPECT_LE(jumps, kStreams * kBlocks / 10);
}

TEST(SlabArena, ABlockGivenBackIsTakenAgain) {
  SlabArena arena;
  std::byte* kept = arena.Take(4352, 0);
  std::byte* data = arena.Take(4352, 1);
  *data = std::byte{7};
  arena.Give(data, 4352);
  EXPECT_EQ(arena.Take(4352, 5), data);
  EXPECT_EQ(*data, std::byte{0});
  arena.Give(data, 4352);
  arena.Give(kept, 4352);
}

}  // namespace
}  // namespace kvant
