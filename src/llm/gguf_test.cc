// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a valid GGUF file says is what GgufFile returns, and getters name what they miss.

#include "llm/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "kvant/error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

using test::GgufWriter;

std::vector<std::byte> Pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

std::string MessageOf(const auto& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void ExpectContains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

TEST(Gguf, ReadsEveryKindOfMetadata) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    writer.Add<std::uint8_t>("u8", 200);
    writer.Add<std::int8_t>("i8", -100);
    writer.Add<std::uint16_t>("u16", 60000);
    writer.Add<std::int16_t>("i16", -30000);
    writer.Add<std::uint32_t>("u32", 4000000000u);
    writer.Add<std::int32_t>("i32", -2000000000);
    writer.Add<std::uint64_t>("u64", 0x7fffffffffffffffu);
    writer.Add<std::int64_t>("i64", std::numeric_limits<std::int64_t>::min());
    writer.Add<float>("f32", 0.1f);
    writer.Add<double>("f64", 0.1);
    writer.Add<bool>("yes", true);
    writer.Add<bool>("no", false);
    writer.AddString("text", std::string("a\0b\xff", 4));
    writer.AddString("empty", "");
    const std::vector<std::byte> bytes = writer.Build();
    const GgufFile file = GgufFile::FromBytes(bytes, "made");
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.path(), "made");
    EXPECT_EQ(file.file_bytes(), bytes.size());
    EXPECT_EQ(file.GetInt("u8"), 200);
    EXPECT_EQ(file.GetInt("i8"), -100);
    EXPECT_EQ(file.GetInt("u16"), 60000);
    EXPECT_EQ(file.GetInt("i16"), -30000);
    EXPECT_EQ(file.GetInt("u32"), 4000000000);
    EXPECT_EQ(file.GetInt("i32"), -2000000000);
    EXPECT_EQ(file.GetInt("u64"), std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(file.GetInt("i64"), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(file.GetFloat("f32"), static_cast<double>(0.1f));
    EXPECT_EQ(file.GetFloat("f64"), 0.1);
    EXPECT_EQ(file.GetFloat("u8"), 200.0);
    EXPECT_TRUE(file.GetBoolOr("yes", false));
    EXPECT_FALSE(file.GetBoolOr("no", true));
    EXPECT_EQ(file.GetString("text"), std::string("a\0b\xff", 4));
    EXPECT_EQ(file.GetString("empty"), "");
    ASSERT_EQ(file.keys().size(), 14u);
    EXPECT_EQ(file.keys().front(), "u8");
    EXPECT_EQ(file.keys().back(), "empty");
  }
}

TEST(Gguf, ReadsArraysOfEveryKind) {
  GgufWriter writer;
  writer.AddArray<std::uint8_t>("u8", {0, 255});
  writer.AddArray<std::int8_t>("i8", {-128, 127});
  writer.AddArray<std::uint16_t>("u16", {65535});
  writer.AddArray<std::int16_t>("i16", {-32768});
  writer.AddArray<std::uint32_t>("u32", {4294967295u, 1});
  writer.AddArray<std::int32_t>("i32", {-1, 2, -3});
  writer.AddArray<std::uint64_t>("u64", {1u << 31});
  writer.AddArray<std::int64_t>("i64", {-5});
  writer.AddArray<float>("f32", {1.5f, -INFINITY});
  writer.AddArray<double>("f64", {0.25});
  writer.AddArray<bool>("bool", {true, false, true});
  writer.AddStringArray("text", {"one", "", "three"});
  writer.AddArray<std::uint32_t>("none", {});
  const std::vector<std::byte> bytes = writer.Build();
  const GgufFile file = GgufFile::FromBytes(bytes, "made");
  const auto items = [&file](std::string_view key) {
    return std::get<GgufArray>(*file.Find(key)).items;
  };
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ(std::get<Ints>(items("u8")), (Ints{0, 255}));
  EXPECT_EQ(std::get<Ints>(items("i8")), (Ints{-128, 127}));
  EXPECT_EQ(std::get<Ints>(items("u16")), Ints{65535});
  EXPECT_EQ(std::get<Ints>(items("i16")), Ints{-32768});
  EXPECT_EQ(std::get<Ints>(items("u32")), (Ints{4294967295, 1}));
  EXPECT_EQ(std::get<Ints>(items("i32")), (Ints{-1, 2, -3}));
  EXPECT_EQ(std::get<Ints>(items("u64")), Ints{std::int64_t{1} << 31});
  EXPECT_EQ(std::get<Ints>(items("i64")), Ints{-5});
  EXPECT_EQ(std::get<Ints>(items("bool")), (Ints{1, 0, 1}));
  EXPECT_TRUE(std::get<Ints>(items("none")).empty());
  EXPECT_EQ(std::get<std::vector<double>>(items("f32")), (std::vector<double>{1.5, -INFINITY}));
  EXPECT_EQ(std::get<std::vector<double>>(items("f64")), std::vector<double>{0.25});
  EXPECT_EQ(std::get<std::vector<std::string_view>>(items("text")),
            (std::vector<std::string_view>{"one", "", "three"}));
}

TEST(Gguf, GettersNameWhatIsMissingOrOfAnotherKind) {
  GgufWriter writer;
  writer.Add<std::uint32_t>("int", 7);
  writer.Add<float>("float", 0.5f);
  writer.Add<float>("nan", NAN);
  writer.Add<bool>("bool", true);
  writer.AddString("text", "x");
  writer.AddArray<std::uint32_t>("array", {1});
  const std::vector<std::byte> bytes = writer.Build();
  const GgufFile file = GgufFile::FromBytes(bytes, "made.gguf");

  EXPECT_EQ(file.Find("absent"), nullptr);
  EXPECT_EQ(file.GetIntOr("absent", 5), 5);
  EXPECT_EQ(file.GetFloatOr("absent", 2.5), 2.5);
  EXPECT_EQ(file.GetStringOr("absent", "d"), "d");
  EXPECT_TRUE(file.GetBoolOr("absent", true));
  EXPECT_EQ(file.GetIntOr("int", 5), 7);
  EXPECT_EQ(file.GetFloatOr("float", 5), 0.5);
  EXPECT_EQ(file.GetStringOr("text", "d"), "x");

  const auto message = [](const auto& call) { return MessageOf(call, ErrorCode::kCorruptData); };
  EXPECT_EQ(message([&] { file.GetInt("absent"); }),
            "made.gguf: metadata \"absent\" is missing; convert the model again");
  ExpectContains(message([&] { file.GetFloat("absent"); }), "\"absent\" is missing");
  ExpectContains(message([&] { file.GetString("absent"); }), "\"absent\" is missing");
  EXPECT_EQ(
      message([&] { file.GetInt("text"); }),
      "made.gguf: metadata \"text\" is a string, but it must be an integer; convert the model "
      "again");
  ExpectContains(message([&] { file.GetInt("bool"); }), "is a bool");
  ExpectContains(message([&] { file.GetIntOr("float", 1); }), "is a floating-point number");
  ExpectContains(message([&] { file.GetFloatOr("text", 1); }), "must be a number");
  ExpectContains(message([&] { file.GetFloat("nan"); }), "must be finite");
  ExpectContains(message([&] { file.GetStringOr("array", ""); }), "is an array");
  ExpectContains(message([&] { file.GetBoolOr("int", false); }), "must be a bool");
}

TEST(Gguf, ReadsTensorsOfEveryReadableType) {
  for (const std::uint32_t alignment : {0u, 8u, 64u, 4096u}) {
    GgufWriter writer;
    if (alignment != 0) writer.SetAlignment(alignment);
    std::vector<std::vector<std::byte>> data;
    for (const WeightTypeInfo& info : WeightTypes()) {
      data.push_back(Pattern(std::size_t{2} * 3 * info.block_bytes));
      writer.AddTensor(info.name, static_cast<std::uint32_t>(info.type), {2 * info.block_values, 3},
                       data.back());
    }
    const std::vector<std::byte> bytes = writer.Build();
    const GgufFile file = GgufFile::FromBytes(bytes, "made");
    ASSERT_EQ(file.tensors().size(), WeightTypes().size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const WeightTypeInfo& info = WeightTypes()[i];
      const GgufTensor* tensor = file.FindTensor(info.name);
      ASSERT_EQ(tensor, &file.tensors()[i]);
      EXPECT_EQ(tensor->name, info.name);
      EXPECT_EQ(tensor->type, info.type);
      EXPECT_EQ(tensor->dims, (std::vector<std::uint64_t>{2 * info.block_values, 3}));
      EXPECT_TRUE(
          std::equal(tensor->bytes.begin(), tensor->bytes.end(), data[i].begin(), data[i].end()));
      EXPECT_EQ((tensor->bytes.data() - bytes.data()) % (alignment == 0 ? 32 : alignment), 0);
      file.DropRows(*tensor, 0, 3);  // bytes of the caller: nothing happens
    }
    EXPECT_EQ(file.FindTensor("absent"), nullptr);
  }
}

TEST(Gguf, WeightTypesHaveTheNumbersAndSizesOfTheFormat) {
  const auto check = [](WeightType type, std::uint32_t number, std::string_view name,
                        std::uint32_t values, std::uint32_t bytes) {
    const WeightTypeInfo& info = InfoOf(type);
    EXPECT_EQ(static_cast<std::uint32_t>(info.type), number);
    EXPECT_EQ(info.name, name);
    EXPECT_EQ(info.block_values, values);
    EXPECT_EQ(info.block_bytes, bytes);
  };
  check(WeightType::kF32, 0, "F32", 1, 4);
  check(WeightType::kF16, 1, "F16", 1, 2);
  check(WeightType::kQ4_0, 2, "Q4_0", 32, 18);
  check(WeightType::kQ4_1, 3, "Q4_1", 32, 20);
  check(WeightType::kQ5_0, 6, "Q5_0", 32, 22);
  check(WeightType::kQ5_1, 7, "Q5_1", 32, 24);
  check(WeightType::kQ8_0, 8, "Q8_0", 32, 34);
  check(WeightType::kQ2_K, 10, "Q2_K", 256, 84);
  check(WeightType::kQ3_K, 11, "Q3_K", 256, 110);
  check(WeightType::kQ4_K, 12, "Q4_K", 256, 144);
  check(WeightType::kQ5_K, 13, "Q5_K", 256, 176);
  check(WeightType::kQ6_K, 14, "Q6_K", 256, 210);
  check(WeightType::kIQ4_NL, 20, "IQ4_NL", 32, 18);
  check(WeightType::kBF16, 30, "BF16", 1, 2);
  EXPECT_EQ(WeightTypes().size(), 14u);
}

TEST(Gguf, AFileWithoutTensorsOrMetadataIsValid) {
  const std::vector<std::byte> bytes = GgufWriter().Build();
  ASSERT_EQ(bytes.size(), 24u);
  const GgufFile file = GgufFile::FromBytes(bytes, "made");
  EXPECT_TRUE(file.keys().empty());
  EXPECT_TRUE(file.tensors().empty());
}

TEST(Gguf, OpenMapsTheFileAndSurvivesMovesAndDroppedPages) {
  GgufWriter writer;
  writer.AddString("text", "kept");
  const std::vector<std::byte> first = Pattern(3 * 4096 * 4);
  const std::vector<std::byte> second = Pattern(4096 * 4);
  writer.AddTensor("first", 0, {4096, 3}, first);
  writer.AddTensor("second", 0, {4096}, second);
  const std::vector<std::byte> bytes = writer.Build();
  const std::string path = testing::TempDir() + "kvant_gguf_map.gguf";
  test::WriteFileBytes(path, bytes);

  GgufFile opened = GgufFile::Open(path);
  std::filesystem::remove(path);  // the map keeps the bytes
  GgufFile file = std::move(opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.file_bytes(), bytes.size());
  EXPECT_EQ(file.GetString("text"), "kept");
  for (int round = 0; round < 2; ++round) {
    for (const auto* name : {"first", "second"}) {
      const GgufTensor& tensor = *file.FindTensor(name);
      const std::vector<std::byte>& want = std::string_view(name) == "first" ? first : second;
      EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), want.begin(), want.end()));
      const std::size_t n_rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
      for (std::size_t row = 0; row < n_rows; ++row) file.DropRows(tensor, row, 1);
    }
  }
  file = GgufFile::FromBytes(bytes, "other");
  EXPECT_EQ(file.path(), "other");
  EXPECT_EQ(file.GetString("text"), "kept");
}

TEST(Gguf, ReadsTheDefaultModel) {
  const auto path = test::DefaultModelPath();
  if (!path) GTEST_SKIP() << "the default model is not there; ./kvant fetch gets it";
  const GgufFile file = GgufFile::Open(*path);
  EXPECT_EQ(file.GetString("general.architecture"), "llama");
  EXPECT_EQ(file.GetInt("llama.block_count"), 30);
  EXPECT_EQ(file.tensors().size(), 272u);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->type, WeightType::kQ8_0);
  EXPECT_EQ(embedding->dims, (std::vector<std::uint64_t>{576, 49152}));
  EXPECT_EQ(embedding->bytes.size(), 576u / 32 * 34 * 49152);
}

}  // namespace
}  // namespace kvant
