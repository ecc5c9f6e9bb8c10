// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/system.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace kvant {
namespace {

TEST(System, FormatBytesIsForPeople) {
  constexpr std::uint64_t kKib = 1024, kMib = kKib << 10, kGib = kMib << 10, kTib = kGib << 10;
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(kKib), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(kMib - 1), "1.0 MiB") << "not 1024.0 KiB";
  EXPECT_EQ(FormatBytes(189 * kMib), "189.0 MiB");
  EXPECT_EQ(FormatBytes(kGib - 1), "1.0 GiB");
  EXPECT_EQ(FormatBytes(5 * kGib / 2), "2.5 GiB");
  EXPECT_EQ(FormatBytes(kTib), "1.0 TiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16777216.0 TiB") << "there is no larger unit";
}

TEST(System, AvailableMemoryIsAPlausibleNumber) {
  const std::uint64_t bytes = AvailableMemoryBytes();
  EXPECT_GT(bytes, std::uint64_t{1} << 20);
  EXPECT_LT(bytes, std::uint64_t{1} << 50);
}

TEST(System, TheProcessPeakSeesTouchedMemoryAndNeverFalls) {
  const std::uint64_t before = ProcessPeakBytes();
  ASSERT_GT(before, 0u);
  // Above whatever the process touched so far, so the peak must move.
  const std::size_t size = before + (std::size_t{16} << 20);
  {
    std::vector<char> memory(size, 1);
    EXPECT_GE(ProcessPeakBytes(), size) << int{memory[size / 2]};
  }
  EXPECT_GE(ProcessPeakBytes(), size);
}

}  // namespace
}  // namespace kvant
