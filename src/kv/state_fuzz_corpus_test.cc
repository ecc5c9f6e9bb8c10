// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The seeds of state_fuzz (fuzz/corpus/state_fuzz) are states of format version 1 that must be restored
// forever, also where the bytes that are written today differ (they may: kernels and libraries round the
// statistics). To write new ones: KVANT_WRITE_SEEDS=1 kvant_kv_test --gtest_filter='StateSeeds*'.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/support/gguf_writer.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/model_path.h"
#include "tests/support/state_bytes.h"
#include "tests/support/state_fuzz_setup.h"

namespace kvant {
namespace {

using test::KvRig;
using test::StateBytes;

constexpr std::size_t kLengths[] = {0, 3, 140};

StateBytes Seed(std::size_t method, std::size_t length) {
  KvRig rig(state_fuzz::kMethods[method], state_fuzz::Geometry(), Isa::kScalar);
  KvCache cache = rig.NewCache();
  rig.Run(cache, test::RandomSequence(state_fuzz::Geometry(), 200, 1), length, 64);
  StateBytes bytes = {static_cast<std::byte>(method)};
  SaveState(cache, state_fuzz::Model(), test::CountingTokens(length + 1),
            [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

// Of a cache that was never saved, and of the committed file: the same, but for the last bits of statistics.
void ExpectRows(const KvCache& got, const KvCache& want) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    const std::vector<float> a = got.Rows(1, 0, side);
    const std::vector<float> b = want.Rows(1, 0, side);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
  }
}

TEST(StateSeeds, CommittedStatesAreRestoredForever) {
  const std::filesystem::path folder = test::DataPath("../../fuzz/corpus/state_fuzz");
  const char* write = std::getenv("KVANT_WRITE_SEEDS");
  std::set<std::string> names;
  for (std::size_t method = 0; method < state_fuzz::kMethods.size(); ++method) {
    for (const std::size_t length : kLengths) {
      const std::string name = "method" + std::to_string(method) + "-" + std::to_string(length);
      SCOPED_TRACE(name);
      names.insert(name);
      if (write != nullptr && *write != '\0') {
        test::WriteFileBytes((folder / name).string(), Seed(method, length));
      }
      std::ifstream in(folder / name, std::ios::binary);
      ASSERT_TRUE(in) << folder / name;
      const std::string found{std::istreambuf_iterator<char>(in), {}};
      ASSERT_GT(found.size(), 1u);
      EXPECT_EQ(static_cast<std::size_t>(found[0]), method);
      KvRig rig(state_fuzz::kMethods[method], state_fuzz::Geometry(), SupportedIsas().back());
      RestoreArgs args = test::ArgsFor(std::as_bytes(std::span(found)).subspan(1));
      args.model = state_fuzz::Model();
      const RestoredState state = RestoreState(rig.method, &rig.pool, rig.isa, args);
      EXPECT_EQ(state.tokens, test::CountingTokens(length + 1));
      KvCache cache = rig.NewCache();
      rig.Run(cache, test::RandomSequence(state_fuzz::Geometry(), 200, 1), length, 64);
      ExpectRows(state.cache, cache);
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(names.count(entry.path().filename().string()), 1u) << entry.path() << " is made nowhere";
  }
}

}  // namespace
}  // namespace kvant
