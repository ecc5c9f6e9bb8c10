// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Seeds of random test inputs: derived from the test's name, so that they are the same in every run
// and differ between tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/rng.h"

namespace kvant::test {

/// gtest's seed (--gtest_random_seed, 0 by default) mixed with an FNV-1a hash of "Suite.Test".
inline std::uint64_t TestSeed() {
  std::uint64_t hash = 0xcbf29ce484222325u ^
                       static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  if (const auto* info = testing::UnitTest::GetInstance()->current_test_info(); info != nullptr) {
    for (const char c : std::string(info->test_suite_name()) + "." + info->name()) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  return hash;
}

/// A generator seeded by TestSeed; the seed is printed with every failure in scope of a SCOPED_TRACE.
inline SplitMix64 TestRng() { return SplitMix64(TestSeed()); }

/// Standard normal numbers.
inline void FillNormal(std::span<float> values, SplitMix64& rng) {
  for (float& x : values) x = static_cast<float>(rng.Normal());
}

}  // namespace kvant::test
