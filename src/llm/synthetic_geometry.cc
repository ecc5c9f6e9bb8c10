// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/synthetic_geometry.h"

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::size_t kBlockValues = 32;  // a row of weights has whole blocks

// As published by the makers of the models: the configurations and GGUF files of Qwen3-8B, Qwen3-1.7B,
// Llama-3.1-8B, Qwen2.5-1.5B and SmolLM2-135M.
std::vector<SyntheticGeometry> MakeShapes() {
  SyntheticGeometry qwen3_8b;
  qwen3_8b.name = "qwen3-8b";
  qwen3_8b.arch = "qwen3";
  qwen3_8b.n_layer = 36;
  qwen3_8b.n_embd = 4096;
  qwen3_8b.n_ff = 12288;
  qwen3_8b.n_q_head = 32;
  qwen3_8b.n_kv_head = 8;
  qwen3_8b.head_dim = 128;
  qwen3_8b.n_vocab = 151936;
  qwen3_8b.ctx_limit = 40960;
  qwen3_8b.rope_base = 1e6;

  SyntheticGeometry qwen3_2b = qwen3_8b;
  qwen3_2b.name = "qwen3-1.7b";
  qwen3_2b.n_layer = 28;
  qwen3_2b.n_embd = 2048;
  qwen3_2b.n_ff = 6144;
  qwen3_2b.n_q_head = 16;
  qwen3_2b.tied = true;

  SyntheticGeometry llama_8b;
  llama_8b.name = "llama-3.1-8b";
  llama_8b.n_layer = 32;
  llama_8b.n_embd = 4096;
  llama_8b.n_ff = 14336;
  llama_8b.n_q_head = 32;
  llama_8b.n_kv_head = 8;
  llama_8b.head_dim = 128;
  llama_8b.n_vocab = 128256;
  llama_8b.ctx_limit = 131072;
  llama_8b.rope_base = 5e5;
  llama_8b.rms_eps = 1e-5;
  llama_8b.llama3_rope = true;

  SyntheticGeometry qwen2_2b;
  qwen2_2b.name = "qwen2.5-1.5b";
  qwen2_2b.arch = "qwen2";
  qwen2_2b.n_layer = 28;
  qwen2_2b.n_embd = 1536;
  qwen2_2b.n_ff = 8960;
  qwen2_2b.n_q_head = 12;
  qwen2_2b.n_kv_head = 2;
  qwen2_2b.head_dim = 128;
  qwen2_2b.n_vocab = 151936;
  qwen2_2b.rope_base = 1e6;
  qwen2_2b.tied = true;

  SyntheticGeometry smollm2;
  smollm2.name = "smollm2-135m";
  smollm2.n_layer = 30;
  smollm2.n_embd = 576;
  smollm2.n_ff = 1536;
  smollm2.n_q_head = 9;
  smollm2.n_kv_head = 3;
  smollm2.head_dim = 64;
  smollm2.n_vocab = 49152;
  smollm2.ctx_limit = 8192;
  smollm2.rope_base = 1e5;
  smollm2.rms_eps = 1e-5;
  smollm2.tied = true;
  smollm2.weights = WeightType::kQ4_1;  // the type of its file

  SyntheticGeometry custom;
  custom.name = "custom";
  return {qwen3_8b, qwen3_2b, llama_8b, qwen2_2b, smollm2, custom};
}

const std::vector<SyntheticGeometry>& Shapes() {
  static const std::vector<SyntheticGeometry> shapes = MakeShapes();
  return shapes;
}

struct CountField {
  std::string_view name;
  std::size_t SyntheticGeometry::*member;
  std::size_t min, max;
};
// No model comes near the upper ends, and no product of theirs overflows.
constexpr std::array<CountField, 9> kCounts = {{
    {"n_layer", &SyntheticGeometry::n_layer, 1, 1024},
    {"n_embd", &SyntheticGeometry::n_embd, 32, 65536},
    {"n_ff", &SyntheticGeometry::n_ff, 32, 1 << 20},
    {"n_q_head", &SyntheticGeometry::n_q_head, 1, 1024},
    {"n_kv_head", &SyntheticGeometry::n_kv_head, 1, 1024},
    {"head_dim", &SyntheticGeometry::head_dim, 2, 1024},
    {"n_vocab", &SyntheticGeometry::n_vocab, 256, 1 << 22},
    {"ctx_limit", &SyntheticGeometry::ctx_limit, 1, std::size_t{1} << 32},
    {"window", &SyntheticGeometry::window, 0, std::size_t{1} << 32},
}};
constexpr std::array<std::string_view, 4> kArchitectures = {"llama", "qwen2", "qwen3", "gemma3"};
constexpr std::array kWeights = {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4_K,
                                 WeightType::kQ6_K, WeightType::kQ8_0};

std::string JoinNames(const auto& items, const auto& name_of) {
  std::string text;
  for (const auto& item : items) text += fmt::format("{}{}", text.empty() ? "" : ", ", name_of(item));
  return text;
}

std::string FieldNames() {
  return JoinNames(kCounts, [](const CountField& field) { return field.name; }) +
         ", arch, rope_base, rms_eps, rope, tied, weights, seed";
}

std::string WeightNames() {
  return JoinNames(kWeights, [](WeightType type) { return InfoOf(type).name; });
}

[[noreturn]] void FailValue(std::string_view field, std::string_view value, std::string_view allowed) {
  Fail(ErrorCode::kInvalidArgument, "{}='{}' is no value for the geometry of a synthetic model; {}", field,
       value, allowed);
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

double ParsePositive(std::string_view field, std::string_view value, double max) {
  const auto number = ParseNumber<double>(value);
  if (!number || !(*number > 0) || !(*number <= max)) {
    FailValue(field, value, fmt::format("allowed is more than 0 up to {}", max));
  }
  return *number;
}

// One of two or more words; their index.
std::size_t ParseWord(std::string_view field, std::string_view value, const auto& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == value) return i;
  }
  FailValue(field, value, "allowed: " + JoinNames(words, [](std::string_view word) { return word; }));
}

WeightType ParseWeights(std::string_view value) {
  for (const WeightType type : kWeights) {
    if (InfoOf(type).name == value) return type;
  }
  FailValue("weights", value, "allowed: " + WeightNames());
}

void SetField(SyntheticGeometry& geometry, std::string_view field, std::string_view value) {
  for (const CountField& count : kCounts) {
    if (count.name != field) continue;
    const auto number = ParseNumber<std::size_t>(value);
    if (!number || *number < count.min || *number > count.max) {
      FailValue(field, value, fmt::format("allowed are {} to {}", count.min, count.max));
    }
    geometry.*count.member = *number;
    return;
  }
  if (field == "arch") {
    geometry.arch = kArchitectures[ParseWord(field, value, kArchitectures)];
  } else if (field == "rope_base") {
    geometry.rope_base = ParsePositive(field, value, 1e15);
  } else if (field == "rms_eps") {
    geometry.rms_eps = ParsePositive(field, value, 1);
  } else if (field == "rope") {
    geometry.llama3_rope = ParseWord(field, value, std::array<std::string_view, 2>{"plain", "llama3"}) == 1;
  } else if (field == "tied") {
    geometry.tied = ParseWord(field, value, std::array<std::string_view, 2>{"no", "yes"}) == 1;
  } else if (field == "weights") {
    geometry.weights = ParseWeights(value);
  } else if (field == "seed") {
    const auto number = ParseNumber<std::uint64_t>(value);
    if (!number) FailValue(field, value, "allowed are whole numbers from 0 on");
    geometry.seed = *number;
  } else {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' is no field of the geometry of a synthetic model; write FIELD=VALUE with commas between; the "
         "fields are {}",
         field, FieldNames());
  }
}

void RequireBlocks(std::string_view what, std::size_t n_cols, std::size_t block, std::string_view why) {
  if (n_cols % block == 0) return;
  Fail(ErrorCode::kInvalidArgument,
       "a synthetic model cannot have {} {}; allowed are multiples of {} ({})", what, n_cols, block, why);
}

// Fills in what follows from other fields, then checks what must fit together.
void Complete(SyntheticGeometry& geometry) {
  std::string missing;
  for (std::size_t i = 0; i < 4; ++i) {  // the first four have no default
    if (geometry.*kCounts[i].member == 0) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kCounts[i].name);
  }
  if (!missing.empty()) {
    Fail(ErrorCode::kInvalidArgument,
         "the geometry of a custom synthetic model lacks {}; give it as FIELD=VALUE with --geometry", missing);
  }
  if (geometry.n_kv_head == 0) geometry.n_kv_head = geometry.n_q_head;
  if (geometry.n_q_head % geometry.n_kv_head != 0) {
    FailValue("n_kv_head", std::to_string(geometry.n_kv_head),
              fmt::format("allowed are divisors of n_q_head, which is {}", geometry.n_q_head));
  }
  if (geometry.head_dim == 0) {
    RequireBlocks("n_embd", geometry.n_embd, geometry.n_q_head, "n_q_head, as long as head_dim is not given");
    geometry.head_dim = geometry.n_embd / geometry.n_q_head;
  }
  RequireBlocks("head_dim", geometry.head_dim, 2, "RoPE turns pairs");
  const std::size_t block = geometry.weights ? InfoOf(*geometry.weights).block_values : kBlockValues;
  const std::string_view why = block == kBlockValues ? "weights are quantized in blocks"
                                                     : "the blocks of the chosen weights; Q4_0 has blocks of 32";
  RequireBlocks("n_embd", geometry.n_embd, block, why);
  RequireBlocks("n_ff", geometry.n_ff, block, why);
  RequireBlocks("n_q_head * head_dim", geometry.n_q_head * geometry.head_dim, block, why);
  if (geometry.window != 0 && geometry.arch != "llama" && geometry.arch != "gemma3") {
    FailValue("window", std::to_string(geometry.window), "allowed with arch=llama and arch=gemma3");
  }
}

}  // namespace

bool IsSynthetic(std::string_view reference) { return reference.starts_with(kSyntheticPrefix); }

std::string SyntheticNames() {
  return JoinNames(Shapes(), [](const SyntheticGeometry& shape) { return shape.name; });
}

SyntheticGeometry ParseSynthetic(std::string_view reference) {
  KVANT_CHECK(IsSynthetic(reference));
  std::string_view rest = reference.substr(kSyntheticPrefix.size());
  const std::string_view name = rest.substr(0, rest.find(','));
  SyntheticGeometry geometry;
  for (const SyntheticGeometry& shape : Shapes()) {
    if (shape.name == name) geometry = shape;
  }
  if (geometry.name.empty()) {
    Fail(ErrorCode::kInvalidArgument,
         "there is no synthetic model '{}'; the names are {} (which takes its shape from --geometry)", name,
         SyntheticNames());
  }
  geometry.name = fmt::format("{}{}", kSyntheticPrefix, name);
  while (rest.find(',') != std::string_view::npos) {
    rest.remove_prefix(rest.find(',') + 1);
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    const std::string_view field = item.substr(0, equals);
    SetField(geometry, field,
             equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1));
    if (field != "seed") geometry.name += fmt::format(",{}", item);
  }
  Complete(geometry);
  return geometry;
}

std::string AddSyntheticFields(std::string_view reference, std::string_view fields, std::uint64_t seed) {
  std::string text(reference);
  if (!fields.empty()) text += fmt::format(",{}", fields);
  ParseSynthetic(text);
  if (text.find(",seed=") == std::string::npos) text += fmt::format(",seed={}", seed);
  return text;
}

std::string SyntheticGeometry::ToString() const {
  std::string text = "arch=" + arch;
  for (const CountField& count : kCounts) text += fmt::format(" {}={}", count.name, this->*count.member);
  return text + fmt::format(" rope_base={} rms_eps={} rope={} tied={} weights={} seed={}", rope_base, rms_eps,
                            llama3_rope ? "llama3" : "plain", tied ? "yes" : "no",
                            weights ? InfoOf(*weights).name : "auto", seed);
}

}  // namespace kvant
