// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The table of readable weight types, and names for messages.

#include <array>

#include "base/error.h"
#include "llm/gguf_parse.h"

namespace kvant {
namespace {

constexpr std::array<WeightTypeInfo, 14> kReadable{{
    {WeightType::kF32, "F32", 1, 4},
    {WeightType::kF16, "F16", 1, 2},
    {WeightType::kQ4_0, "Q4_0", 32, 18},
    {WeightType::kQ4_1, "Q4_1", 32, 20},
    {WeightType::kQ5_0, "Q5_0", 32, 22},
    {WeightType::kQ5_1, "Q5_1", 32, 24},
    {WeightType::kQ8_0, "Q8_0", 32, 34},
    {WeightType::kQ2_K, "Q2_K", 256, 84},
    {WeightType::kQ3_K, "Q3_K", 256, 110},
    {WeightType::kQ4_K, "Q4_K", 256, 144},
    {WeightType::kQ5_K, "Q5_K", 256, 176},
    {WeightType::kQ6_K, "Q6_K", 256, 210},
    {WeightType::kIQ4_NL, "IQ4_NL", 32, 18},
    {WeightType::kBF16, "BF16", 1, 2},
}};

// Numbers that GGUF assigns; gaps were removed from the format. Used in messages only.
struct NamedType {
  std::uint32_t number;
  std::string_view name;
};
constexpr NamedType kKnownNames[] = {
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"},
};

}  // namespace

std::span<const WeightTypeInfo> WeightTypes() { return kReadable; }

const WeightTypeInfo& InfoOf(WeightType type) {
  const WeightTypeInfo* info = gguf::FindWeightType(static_cast<std::uint32_t>(type));
  KVANT_CHECK(info != nullptr);
  return *info;
}

std::uint64_t RowBytes(WeightType type, std::uint64_t n_cols) {
  const WeightTypeInfo& info = InfoOf(type);
  return n_cols / info.block_values * info.block_bytes;
}

namespace gguf {

const WeightTypeInfo* FindWeightType(std::uint32_t type) {
  for (const WeightTypeInfo& info : kReadable) {
    if (static_cast<std::uint32_t>(info.type) == type) return &info;
  }
  return nullptr;
}

std::string WeightTypeLabel(std::uint32_t type) {
  for (const NamedType& known : kKnownNames) {
    if (known.number == type) return fmt::format("{} ({})", known.name, type);
  }
  return fmt::format("number {}", type);
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kMaxShown = 64;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  quoted += text.size() > kMaxShown ? "...\"" : "\"";
  return quoted;
}

}  // namespace gguf
}  // namespace kvant
