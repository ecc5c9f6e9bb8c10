// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"

namespace kvant {
namespace {

constexpr MemoryTag kTags[] = {MemoryTag::kWeights, MemoryTag::kKv, MemoryTag::kScratch,
                               MemoryTag::kLogits, MemoryTag::kOther};

TEST(Memory, EveryTagHasItsName) {
  const std::vector<std::string> want = {"weights", "kv", "scratch", "logits", "other"};
  ASSERT_EQ(want.size(), kMemoryTagCount);
  for (std::size_t i = 0; i < kMemoryTagCount; ++i) EXPECT_EQ(MemoryTagName(kTags[i]), want[i]);
}

TEST(Memory, BytesAreAlignedZeroedAndCountedInWholeLines) {
  for (const std::uint64_t bytes : {1u, 63u, 64u, 65u, 4096u, (2u << 20) - 1, (2u << 20) + 1}) {
    const std::uint64_t rounded = (bytes + 63) / 64 * 64;
    const std::uint64_t before = MemoryCountOf(MemoryTag::kKv).current_bytes;
    const std::uint64_t total = MemoryCountTotal().current_bytes;
    std::byte* data = AllocateTagged(bytes, MemoryTag::kKv);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kAlignment, 0u) << bytes;
    for (std::uint64_t i = 0; i < rounded; ++i)
      ASSERT_EQ(data[i], std::byte{0}) << bytes << ", " << i;
    data[rounded - 1] = std::byte{1};
    EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).current_bytes, before + rounded);
    EXPECT_EQ(MemoryCountTotal().current_bytes, total + rounded);
    FreeTagged(data, bytes, MemoryTag::kKv);
    EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).current_bytes, before);
    EXPECT_EQ(MemoryCountTotal().current_bytes, total);
  }
}

TEST(Memory, NothingCostsNothing) {
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  EXPECT_EQ(AllocateTagged(0, MemoryTag::kOther), nullptr);
  FreeTagged(nullptr, 0, MemoryTag::kOther);
  FreeTagged(nullptr, 100, MemoryTag::kOther);
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
}

TEST(Memory, PeaksAreKeptForEachTagAndForTheSum) {
  ResetMemoryPeaks();
  const std::uint64_t base = MemoryCountTotal().current_bytes;
  const std::uint64_t base_kv = MemoryCountOf(MemoryTag::kKv).current_bytes;
  const std::uint64_t base_logits = MemoryCountOf(MemoryTag::kLogits).current_bytes;
  { const Buffer<char> first(6400, MemoryTag::kKv); }
  { const Buffer<char> second(3200, MemoryTag::kLogits); }
  EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).peak_bytes, base_kv + 6400);
  EXPECT_EQ(MemoryCountOf(MemoryTag::kLogits).peak_bytes, base_logits + 3200);
  EXPECT_EQ(MemoryCountTotal().peak_bytes, base + 6400) << "the two were never alive together";
  {
    const Buffer<char> first(6400, MemoryTag::kKv);
    const Buffer<char> second(3200, MemoryTag::kLogits);
  }
  EXPECT_EQ(MemoryCountTotal().peak_bytes, base + 9600);
  const Buffer<char> kept(128, MemoryTag::kKv);
  ResetMemoryPeaks();
  EXPECT_EQ(MemoryCountOf(MemoryTag::kKv).peak_bytes, base_kv + 128)
      << "a phase starts at the present";
  EXPECT_EQ(MemoryCountTotal().peak_bytes, base + 128);
}

TEST(Memory, CountersAgreeAfterManyThreads) {
  ResetMemoryPeaks();
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  ThreadPool threads(4);
  threads.ParallelFor(400, [](std::size_t item, std::size_t) {
    const Buffer<int> buffer(item + 1, kTags[item % kMemoryTagCount]);
    EXPECT_EQ(buffer[item], 0);
  });
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
  EXPECT_GE(MemoryCountTotal().peak_bytes, before + 1600);
}

TEST(Buffer, MovesItsMemoryAndNeverCountsItTwice) {
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  Buffer<std::uint32_t> a(100, MemoryTag::kScratch);
  const std::uint32_t* data = a.data();
  a[99] = 7;
  EXPECT_EQ(a.bytes(), 400u);
  EXPECT_EQ(MemoryCountTotal().current_bytes, before + 448);
  Buffer<std::uint32_t> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b[99], 7u);
  EXPECT_EQ(b.span().size(), 100u);
  Buffer<std::uint32_t> c(10, MemoryTag::kLogits);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(MemoryCountTotal().current_bytes, before + 448) << "the ten were freed";
  Buffer<std::uint32_t>& self = c;
  c = std::move(self);
  EXPECT_EQ(c.size(), 100u);
  c = Buffer<std::uint32_t>();
  EXPECT_EQ(c.size(), 0u);
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
}

void* RefuseToAllocate(std::uint64_t) { return nullptr; }

TEST(Memory, ARefusalIsAnErrorThatCountsNothing) {
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  SetAllocationHooks({.allocate = &RefuseToAllocate, .free = nullptr});
  try {
    AllocateTagged(1000, MemoryTag::kWeights);
    ADD_FAILURE() << "memory came from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    const std::string message = error.what();
    EXPECT_NE(message.find("1024 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("weights"), std::string::npos) << message;
  }
  SetAllocationHooks({});
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
}

TEST(Memory, ASizeThatNoMachineHasIsAnErrorToo) {
  for (const std::uint64_t bytes : {UINT64_MAX, UINT64_MAX - 62, UINT64_MAX / 2}) {
    EXPECT_THROW(AllocateTagged(bytes, MemoryTag::kKv), Error) << bytes;
  }
}

std::uint64_t g_hook_bytes = 0;
void* CountingAllocate(std::uint64_t bytes) {
  g_hook_bytes += bytes;
  return std::aligned_alloc(kAlignment, bytes);
}
void CountingFree(void* data, std::uint64_t bytes) {
  g_hook_bytes -= bytes;
  std::free(data);
}

TEST(Memory, HooksReplaceTheAllocatorUntilTheyAreTakenBack) {
  SetAllocationHooks({.allocate = &CountingAllocate, .free = &CountingFree});
  {
    const Buffer<char> buffer(65, MemoryTag::kOther);
    EXPECT_EQ(g_hook_bytes, 128u);
    EXPECT_EQ(buffer[64], 0);
  }
  EXPECT_EQ(g_hook_bytes, 0u);
  SetAllocationHooks({});
  const Buffer<char> buffer(65, MemoryTag::kOther);
  EXPECT_EQ(g_hook_bytes, 0u);
}

}  // namespace
}  // namespace kvant
