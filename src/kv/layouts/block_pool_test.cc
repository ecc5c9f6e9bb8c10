// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/layouts/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/memory.h"
#include "kvant/error.h"

namespace kvant {
namespace {

TEST(BlockPool, CountsEveryByteByClassAndGivesItBack) {
  const std::uint64_t before = MemoryCountOf(MemoryTag::kKv).current_bytes;
  BlockPool pool(0);
  {
    const BlockRef small = pool.Allocate(100);
    const BlockRef large = pool.Allocate(4096);
    EXPECT_EQ(small.bytes(), 128u);
    EXPECT_EQ(pool.resident_bytes(), 128u + 4096u);
    EXPECT_EQ(pool.size_classes().at(128), 1u);
    EXPECT_EQ(pool.size_classes().at(4096), 1u);
    EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).current_bytes, before + 128 + 4096);
  }
  EXPECT_EQ(pool.resident_bytes(), 0u);
  EXPECT_EQ(pool.peak_bytes(), 128u + 4096u);
  EXPECT_EQ(pool.size_classes().at(4096), 0u);
  EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).current_bytes, before);
}

TEST(BlockPool, BlocksAreZeroedAndAligned) {
  BlockPool pool(0);
  for (int round = 0; round < 3; ++round) {
    BlockRef block = pool.Allocate(640);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0u);
    for (std::size_t i = 0; i < 640; ++i) ASSERT_EQ(block.data()[i], std::byte{0});
    std::memset(block.data(), 0xff, 640);  // the next round may get the same memory
  }
}

TEST(BlockPool, TheLimitIsHardAndAFailureChangesNothing) {
  BlockPool pool(1000);
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(pool.Allocate(128));
  EXPECT_EQ(pool.resident_bytes(), 896u);
  try {
    pool.Allocate(128);
    FAIL() << "the limit of 1000 bytes was passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find("1000 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(pool.resident_bytes(), 896u);
  EXPECT_EQ(pool.peak_bytes(), 896u);
  EXPECT_THROW(pool.Allocate(UINT64_MAX - 100), Error);
  blocks.pop_back();
  EXPECT_NO_THROW(blocks.push_back(pool.Allocate(192)));
}

TEST(BlockPool, SharesAreCountedAndClonesAreSeparate) {
  BlockPool pool(0);
  BlockRef a = pool.Allocate(64);
  EXPECT_FALSE(a.shared());
  BlockRef b = a;
  EXPECT_TRUE(a.shared());
  EXPECT_TRUE(b.shared());
  EXPECT_EQ(pool.resident_bytes(), 64u);
  a.data()[3] = std::byte{42};
  BlockRef c = pool.Clone(a);
  EXPECT_EQ(c.data()[3], std::byte{42});
  c.data()[3] = std::byte{7};
  EXPECT_EQ(b.data()[3], std::byte{42});
  b = BlockRef();
  EXPECT_FALSE(a.shared());
  EXPECT_EQ(pool.resident_bytes(), 128u);
  BlockRef& alias = a;
  a = alias;  // self-assignment keeps the block
  EXPECT_EQ(a.data()[3], std::byte{42});
}

}  // namespace
}  // namespace kvant
