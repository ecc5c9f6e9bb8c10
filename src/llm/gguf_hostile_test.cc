// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Files that lie: each must give one sentence that names the file and the thing, and none may read
// outside its bytes (the copies below are exact, so that AddressSanitizer sees one byte too far).

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvant/error.h"
#include "llm/gguf.h"
#include "tests/support/gguf_writer.h"

namespace kvant {
namespace {

using test::ByteSink;
using test::GgufWriter;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kF32 = 0;

// Touches everything that the file hands out.
std::uint64_t ReadAll(const GgufFile& file) {
  std::uint64_t sum = 0;
  for (const std::string_view key : file.keys()) {
    for (const char c : key) sum += static_cast<unsigned char>(c);
    const GgufValue& value = *file.Find(key);
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
    const auto* array = std::get_if<GgufArray>(&value);
    if (array == nullptr) continue;
    if (const auto* texts = std::get_if<std::vector<std::string_view>>(&array->items)) {
      for (const std::string_view text : *texts) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
      }
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (const std::byte b : tensor.bytes) sum += static_cast<std::uint64_t>(b);
  }
  return sum;
}

// The error that the bytes give, or nothing when they are a valid file. Any other exception fails.
std::optional<Error> ErrorOf(const Bytes& bytes) {
  const auto exact = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), exact.get());
  try {
    ReadAll(GgufFile::FromBytes({exact.get(), bytes.size()}, "bad.gguf"));
  } catch (const Error& error) {
    const std::string_view text = error.what();
    EXPECT_EQ(text.substr(0, 10), "bad.gguf: ") << text;
    EXPECT_EQ(text.find('\n'), std::string_view::npos) << text;
    EXPECT_TRUE(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported)
        << text;
    return error;
  }
  return std::nullopt;
}

void ExpectError(const Bytes& bytes, std::string_view part,
                 ErrorCode code = ErrorCode::kCorruptData) {
  const std::optional<Error> error = ErrorOf(bytes);
  ASSERT_TRUE(error.has_value()) << "no error, expected: " << part;
  EXPECT_EQ(error->code(), code) << error->what();
  EXPECT_NE(std::string_view(error->what()).find(part), std::string_view::npos)
      << error->what() << "\n  lacks: " << part;
}

template <typename T>
void Patch(Bytes& bytes, std::size_t offset, T value) {
  ASSERT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

Bytes Floats(std::size_t count) { return Bytes(count * 4, std::byte{1}); }

// Metadata of every shape and two tensors, a few hundred bytes.
GgufWriter SmallFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.Add<std::uint32_t>("count", 3);
  writer.Add<bool>("flag", true);
  writer.Add<double>("base", 10000.0);
  writer.AddArray<float>("scores", {1.0f, 2.0f});
  writer.AddStringArray("tokens", {"a", "bc", ""});
  writer.SetAlignment(16);
  writer.AddTensor("one", kF32, {5}, Floats(5));
  writer.AddTensor("two", 8, {32, 2}, Bytes(68, std::byte{2}));
  return writer;
}

TEST(GgufHostile, TruncationAtEveryByteIsAnError) {
  const Bytes whole = SmallFile().Build();
  ASSERT_FALSE(ErrorOf(whole).has_value());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto error =
        ErrorOf(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_TRUE(error.has_value()) << "cut to " << size << " of " << whole.size() << " bytes";
  }
}

TEST(GgufHostile, EveryBitFlipInTheHeaderIsSurvived) {
  const GgufWriter writer = SmallFile();
  const Bytes whole = writer.Build();
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < writer.HeaderBytes() * 8; ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    if (ErrorOf(flipped).has_value()) ++refused;
  }
  // Every flip of the magic, the version and the counts must be seen; flips inside texts need not
  // be.
  EXPECT_GE(refused, 24u * 8 - 1);
}

TEST(GgufHostile, EveryByteValueInTheHeaderIsSurvived) {
  const GgufWriter writer = SmallFile();
  const Bytes whole = writer.Build();
  for (std::size_t at = 0; at < writer.HeaderBytes(); ++at) {
    for (const unsigned value : {0x00u, 0x01u, 0x7fu, 0x80u, 0xffu}) {
      Bytes changed = whole;
      changed[at] = static_cast<std::byte>(value);
      ErrorOf(changed);
    }
    for (const std::uint64_t value : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63,
                                      (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 32}) {
      if (at + sizeof(value) > whole.size()) continue;
      Bytes changed = whole;
      Patch(changed, at, value);
      ErrorOf(changed);
    }
  }
}

TEST(GgufHostile, WrongStarts) {
  ExpectError({}, "the file is empty; give a GGUF model file");
  Bytes bytes = SmallFile().Build();
  Patch(bytes, 0, std::uint32_t{0x46554747});  // "GGUF" itself
  EXPECT_FALSE(ErrorOf(bytes).has_value());
  std::memcpy(bytes.data(), "PK\x03\x04", 4);
  ExpectError(bytes, "starts with \"PK\\x03\\x04\" instead of \"GGUF\"; give a GGUF model file");
}

TEST(GgufHostile, VersionsThatAreNotReadAreNamed) {
  Bytes bytes = SmallFile().Build();
  for (const std::uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    Patch(bytes, 4, version);
    ExpectError(bytes,
                "GGUF version " + std::to_string(version) + " is not supported, only 2 and 3",
                ErrorCode::kUnsupported);
  }
  Patch(bytes, 4, std::uint32_t{3} << 24);
  ExpectError(bytes, "big-endian GGUF files are not supported", ErrorCode::kUnsupported);
}

TEST(GgufHostile, AbsurdCountsAreRefusedBeforeAnythingIsAllocated) {
  for (const std::uint64_t count :
       {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    Bytes bytes = SmallFile().Build();
    Patch(bytes, 8, count);
    ExpectError(bytes, "the header claims " + std::to_string(count) + " tensors");
    bytes = SmallFile().Build();
    Patch(bytes, 16, count);
    ExpectError(bytes, "the header claims " + std::to_string(count) + " metadata entries");

    ByteSink array;
    array.Put(std::uint32_t{4});
    array.Put(count);
    array.Put(std::uint32_t{1});
    GgufWriter writer;
    writer.AddRaw("list", test::kGgufArrayKind, array.bytes());
    ExpectError(writer.Build(), "metadata \"list\" claims " + std::to_string(count) + " items");

    ByteSink text;
    text.Put(count);
    GgufWriter text_writer;
    text_writer.AddRaw("text", test::kGgufStringKind, text.bytes());
    ExpectError(text_writer.Build(), "metadata \"text\" needs " + std::to_string(count) + " bytes");
  }
}

TEST(GgufHostile, MetadataThatContradictsTheFormat) {
  const auto with = [](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer;
    add(writer);
    return writer.Build();
  };
  ExpectError(with([](GgufWriter& w) {
                w.Add<bool>("twice", true);
                w.Add<bool>("twice", true);
              }),
              "metadata \"twice\" is there twice");
  ExpectError(with([](GgufWriter& w) { w.Add<double>("", 1.0); }),
              "the key of metadata entry 0 has 0 bytes");
  ExpectError(with([](GgufWriter& w) { w.Add<bool>(std::string(65536, 'k'), true); }),
              "has 65536 bytes, 1 to 65535 are allowed");
  EXPECT_FALSE(
      ErrorOf(with([](GgufWriter& w) { w.Add<bool>(std::string(65535, 'k'), true); })).has_value());
  ExpectError(with([](GgufWriter& w) { w.AddRaw("odd", 13, Floats(2)); }),
              "has the unknown kind 13");
  ExpectError(with([](GgufWriter& w) { w.AddRaw("flag", 7, Bytes(1, std::byte{2})); }),
              "metadata \"flag\" is a bool with the value 2");
  ExpectError(with([](GgufWriter& w) { w.Add("big", std::uint64_t{1} << 63); }),
              "metadata \"big\" is 9223372036854775808");
  ExpectError(with([](GgufWriter& w) {
                ByteSink array;
                array.Put(std::uint32_t{13});
                array.Put(std::uint64_t{0});
                w.AddRaw("list", test::kGgufArrayKind, array.bytes());
              }),
              "an array of the unknown kind 13");
  ExpectError(with([](GgufWriter& w) {
                ByteSink array;
                array.Put(test::kGgufArrayKind);
                array.Put(std::uint64_t{1});
                array.Put(std::uint32_t{4});
                array.Put(std::uint64_t{0});
                w.AddRaw("nest", test::kGgufArrayKind, array.bytes());
              }),
              "metadata \"nest\" is an array of arrays", ErrorCode::kUnsupported);
  ExpectError(with([](GgufWriter& w) { w.AddRaw("bad\n\x1b", 99, Floats(1)); }),
              "metadata \"bad\\x0a\\x1b\" has the unknown kind 99");
}

TEST(GgufHostile, AlignmentMustBeASanePowerOfTwo) {
  for (const std::uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 131072u, 0x80000000u, 0xffffffffu}) {
    GgufWriter writer;
    writer.Add("general.alignment", alignment);
    ExpectError(writer.Build(), "general.alignment is " + std::to_string(alignment) +
                                    ", a power of two from 8 to 65536 is allowed");
  }
  GgufWriter writer;
  writer.AddString("general.alignment", "32");
  ExpectError(writer.Build(), "general.alignment is not an integer");
}

TEST(GgufHostile, TensorEntriesThatContradictTheFormat) {
  const auto entry = [](std::string_view name, std::uint32_t type,
                        const std::vector<std::uint64_t>& dims, std::uint64_t offset) {
    GgufWriter writer;
    writer.AddTensor("good", kF32, {8}, Floats(8));
    writer.AddTensorInfo(name, type, dims, offset);
    return writer.Build();
  };
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 32;
  ExpectError(entry("", kF32, {8}, 32), "the name of tensor 1 has 0 bytes");
  ExpectError(entry(std::string(65, 't'), kF32, {8}, 32), "has 65 bytes, 1 to 64 are allowed");
  ExpectError(entry("good", kF32, {8}, 32), "tensor \"good\" is there twice");
  ExpectError(entry("bad", kF32, {}, 32), "tensor \"bad\" has 0 dimensions, 1 to 4 are allowed");
  ExpectError(entry("bad", kF32, {1, 1, 1, 1, 1}, 32), "has 5 dimensions");
  ExpectError(entry("bad", kF32, {8, 0}, 32), "tensor \"bad\" has a dimension of 0");
  ExpectError(entry("bad", kF32, {kHuge, kHuge}, 32), "multiply beyond 64 bits");
  ExpectError(entry("bad", kF32, {~std::uint64_t{0}}, 32), "multiply beyond 64 bits");
  ExpectError(entry("bad", 8, {48}, 32),
              "rows of 48 values, which Q8_0 cannot hold in blocks of 32");
  ExpectError(entry("bad", 14, {896, 4}, 32),
              "rows of 896 values, which Q6_K cannot hold in blocks of 256");
  ExpectError(entry("bad", kF32, {8}, 32), "tensor \"bad\" (32 bytes at data offset 32) ends past");
  ExpectError(entry("bad", kF32, {8}, ~std::uint64_t{31}), "ends past the end of the file");
  ExpectError(entry("bad", kF32, {kHuge, kHuge / 8}, 0), "ends past the end of the file");
  ExpectError(entry("bad", kF32, {1}, 4), "offset 4, which is not a multiple of the alignment 32");
  ExpectError(entry("bad", kF32, {4}, 0), "overlap");
}

TEST(GgufHostile, WeightTypesThatAreNotReadAreNamed) {
  const auto with_type = [](std::uint32_t type) {
    GgufWriter writer;
    writer.AddTensor("blk.0.w", type, {256}, Floats(256));
    return writer.Build();
  };
  ExpectError(
      with_type(15),
      "tensor \"blk.0.w\" has the weight type Q8_K (15), which is not supported; supported: "
      "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, BF16",
      ErrorCode::kUnsupported);
  ExpectError(with_type(39), "the weight type MXFP4 (39)", ErrorCode::kUnsupported);
  ExpectError(with_type(4), "the weight type number 4,", ErrorCode::kUnsupported);
  ExpectError(with_type(0xffffffffu), "4294967295", ErrorCode::kUnsupported);
}

// Paths that are no readable file.
class GgufOpen : public testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return testing::TempDir() + "kvant_gguf_open_" + std::to_string(getpid()) + "_" + name;
  }
  static void ExpectOpenError(const std::string& path, ErrorCode code, std::string_view part) {
    try {
      GgufFile::Open(path);
      ADD_FAILURE() << path << " was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(std::string(error.what()).find(path + ": "), 0u) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(GgufOpen, MissingFile) {
  ExpectOpenError(Path("missing"), ErrorCode::kNotFound, "give the path of a GGUF file");
  ExpectOpenError("", ErrorCode::kNotFound, "cannot open the model file");
}

TEST_F(GgufOpen, Folder) {
  ExpectOpenError(testing::TempDir(), ErrorCode::kInvalidArgument, "this is a folder");
}

TEST_F(GgufOpen, PipeDoesNotBlock) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectOpenError(path, ErrorCode::kInvalidArgument, "this is a pipe or device");
  std::filesystem::remove(path);
}

TEST_F(GgufOpen, EmptyFile) {
  const std::string path = Path("empty");
  test::WriteFileBytes(path, {});
  ExpectOpenError(path, ErrorCode::kCorruptData, "the file is empty");
  std::filesystem::remove(path);
}

TEST_F(GgufOpen, UnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const std::string path = Path("unreadable");
  test::WriteFileBytes(path, SmallFile().Build());
  std::filesystem::permissions(path, std::filesystem::perms::none);
  ExpectOpenError(path, ErrorCode::kInvalidArgument, "check that this user may read it");
  std::filesystem::remove(path);
}

TEST_F(GgufOpen, TruncatedFile) {
  const std::string path = Path("short");
  Bytes bytes = SmallFile().Build();
  bytes.pop_back();
  test::WriteFileBytes(path, bytes);
  ExpectOpenError(path, ErrorCode::kCorruptData, "tensor \"two\" (68 bytes at data offset 32)");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvant
