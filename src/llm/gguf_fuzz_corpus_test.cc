// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The seeds of gguf_fuzz (fuzz/corpus/gguf_fuzz) are made here, and the committed files must be
// these bytes. To write them after a change: KVANT_WRITE_SEEDS=1 kvant_llm_test
// --gtest_filter='GgufSeeds*'.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "llm/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

using test::GgufWriter;
using Bytes = std::vector<std::byte>;

// Small valid files: together they hold every kind of metadata, every type and both versions.
std::map<std::string, Bytes> Seeds() {
  std::map<std::string, Bytes> seeds;
  seeds["empty"] = GgufWriter().Build();

  GgufWriter kinds(2);
  kinds.Add<std::uint8_t>("a", 1);
  kinds.Add<std::int8_t>("b", -1);
  kinds.Add<std::uint16_t>("c", 2);
  kinds.Add<std::int16_t>("d", -2);
  kinds.Add<std::uint32_t>("e", 3);
  kinds.Add<std::int32_t>("f", -3);
  kinds.Add<std::uint64_t>("g", 4);
  kinds.Add<std::int64_t>("h", -4);
  kinds.Add<float>("i", 0.5f);
  kinds.Add<double>("j", 0.25);
  kinds.Add<bool>("k", true);
  kinds.AddString("l", "text");
  seeds["kinds"] = kinds.Build();

  GgufWriter arrays;
  arrays.AddArray<std::uint8_t>("a", {1, 2});
  arrays.AddArray<std::int32_t>("b", {-1});
  arrays.AddArray<float>("c", {0.5f});
  arrays.AddArray<bool>("d", {true, false});
  arrays.AddStringArray("e", {"x", "", "yz"});
  seeds["arrays"] = arrays.Build();

  GgufWriter tensors;
  tensors.SetAlignment(8);
  for (const WeightTypeInfo& info : WeightTypes()) {
    tensors.AddTensor(info.name, static_cast<std::uint32_t>(info.type), {info.block_values},
                      Bytes(info.block_bytes, std::byte{7}));
  }
  tensors.AddTensor("four", 1, {1, 2, 1, 1}, Bytes(4, std::byte{1}));
  seeds["tensors"] = tensors.Build();
  return seeds;
}

TEST(GgufSeeds, CommittedSeedsAreTheOnesMadeHere) {
  const std::filesystem::path folder = test::DataPath("../../fuzz/corpus/gguf_fuzz");
  const char* write = std::getenv("KVANT_WRITE_SEEDS");
  std::set<std::string> names;
  for (const auto& [name, bytes] : Seeds()) {
    names.insert(name);
    EXPECT_EQ(GgufFile::FromBytes(bytes, name).file_bytes(), bytes.size());
    if (write != nullptr && *write != '\0') test::WriteFileBytes(folder / name, bytes);
    std::ifstream in(folder / name, std::ios::binary);
    ASSERT_TRUE(in) << folder / name;
    const std::string found{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(found, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
        << name;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(names.count(entry.path().filename()), 1u) << entry.path() << " is made nowhere";
  }
}

}  // namespace
}  // namespace kvant
