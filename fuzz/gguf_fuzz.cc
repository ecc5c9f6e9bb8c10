// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer target: any bytes are either a GGUF file whose every part lies inside them, or one
// Error with one sentence. Everything else (another exception, a read outside, an overflow) is a
// finding.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "kvant/error.h"
#include "llm/gguf.h"

namespace {

using kvant::Error;
using kvant::ErrorCode;
using kvant::GgufArray;
using kvant::GgufFile;
using kvant::GgufTensor;

void Require(bool condition) {
  if (!condition) std::abort();
}

// Keeps the optimizer from dropping the reads.
volatile std::uint64_t g_sum;

void ReadText(std::string_view text) {
  std::uint64_t sum = 0;
  for (const char c : text) sum += static_cast<unsigned char>(c);
  g_sum = sum;
}

void RequireOneSentence(const Error& error) {
  const std::string_view text = error.what();
  Require(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kUnsupported);
  Require(text.substr(0, 11) == "fuzz.gguf: " && text.find('\n') == std::string_view::npos);
}

// A getter of the wrong kind is an Error as well.
template <typename Getter>
void Try(Getter getter) {
  try {
    getter();
  } catch (const Error& error) {
    Require(error.code() == ErrorCode::kCorruptData);
  }
}

void ReadMetadata(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    ReadText(key);
    const kvant::GgufValue* value = file.Find(key);
    Require(value != nullptr);
    if (const auto* array = std::get_if<GgufArray>(value)) {
      if (const auto* texts = std::get_if<std::vector<std::string_view>>(&array->items)) {
        for (const std::string_view text : *texts) ReadText(text);
      }
    }
    Try([&] { file.GetInt(key); });
    Try([&] { file.GetFloat(key); });
    Try([&] { ReadText(file.GetString(key)); });
    Try([&] { file.GetBoolOr(key, false); });
  }
}

void ReadTensors(const GgufFile& file, std::span<const std::byte> bytes) {
  std::uint64_t total = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    ReadText(tensor.name);
    Require(file.FindTensor(tensor.name) == &tensor);
    const kvant::WeightTypeInfo& info = kvant::InfoOf(tensor.type);
    std::uint64_t values = 1;
    for (const std::uint64_t dim : tensor.dims) values *= dim;
    Require(values / info.block_values * info.block_bytes == tensor.bytes.size());
    Require(tensor.bytes.data() >= bytes.data());
    Require(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    ReadText({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    total += tensor.bytes.size();
  }
  Require(total <= bytes.size());  // tensors share no bytes
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const GgufFile file = GgufFile::FromBytes(bytes, "fuzz.gguf");
    ReadMetadata(file);
    ReadTensors(file, bytes);
  } catch (const Error& error) {
    RequireOneSentence(error);
  }
  return 0;
}
