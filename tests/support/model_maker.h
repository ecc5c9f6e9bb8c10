// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A small model whose every key and tensor may be left out or changed: for tests of what is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "llm/model.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {

/// A llama model that is right until something is changed.
class ModelMaker {
 public:
  ModelMaker() {
    Count("llama.block_count", 2);
    Count("llama.context_length", 128);
    Count("llama.embedding_length", 32);
    Count("llama.feed_forward_length", 48);
    Count("llama.attention.head_count", 4);
    Count("llama.attention.head_count_kv", 2);
    Tensor("token_embd.weight", {32, 20});
    Tensor("output_norm.weight", {32});
    for (const std::string block : {"blk.0.", "blk.1."}) {
      Tensor(block + "attn_norm.weight", {32});
      Tensor(block + "attn_q.weight", {32, 32});
      Tensor(block + "attn_k.weight", {32, 16});
      Tensor(block + "attn_v.weight", {32, 16});
      Tensor(block + "attn_output.weight", {32, 32});
      Tensor(block + "ffn_norm.weight", {32});
      Tensor(block + "ffn_gate.weight", {32, 48});
      Tensor(block + "ffn_up.weight", {32, 48});
      Tensor(block + "ffn_down.weight", {48, 32});
    }
  }

  std::string architecture = "llama";
  std::vector<std::pair<std::string, std::int64_t>> counts;
  std::vector<std::pair<std::string, double>> floats = {
      {"llama.attention.layer_norm_rms_epsilon", 1e-5}};
  std::vector<std::pair<std::string, std::string>> strings;
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors;
  std::set<std::string> half_tensors;  // written as F16

  void Count(const std::string& key, std::int64_t value) { Set(counts, key, value); }
  void Float(const std::string& key, double value) { Set(floats, key, value); }
  void Tensor(const std::string& name, std::vector<std::uint64_t> dims) {
    Set(tensors, name, dims);
  }
  void Remove(const std::string& name) {
    std::erase_if(counts, [&](const auto& item) { return item.first == name; });
    std::erase_if(floats, [&](const auto& item) { return item.first == name; });
    std::erase_if(tensors, [&](const auto& item) { return item.first == name; });
  }

  std::vector<std::byte> Bytes() const {
    GgufWriter writer;
    writer.AddString("general.architecture", architecture);
    for (const auto& [key, value] : counts) writer.Add(key, value);
    for (const auto& [key, value] : floats) writer.Add(key, value);
    for (const auto& [key, value] : strings) writer.AddString(key, value);
    for (const auto& [name, dims] : tensors) {
      std::size_t size = 1;
      for (const std::uint64_t dim : dims) size *= dim;
      const WeightType type = half_tensors.count(name) != 0 ? WeightType::kF16 : WeightType::kF32;
      writer.AddTensor(name, static_cast<std::uint32_t>(type), dims,
                       test::EncodeWeights(type, std::vector<double>(size, 0.25)));
    }
    return writer.Build();
  }

 private:
  template <typename List, typename Value>
  static void Set(List& list, const std::string& key, Value value) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == key; });
    if (found != list.end()) {
      found->second = std::move(value);
    } else {
      list.emplace_back(key, std::move(value));
    }
  }
};

inline Model LoadModel(const ModelMaker& maker) {
  const std::vector<std::byte> bytes = maker.Bytes();
  ThreadPool threads(2);
  return Model::Load(GgufFile::FromBytes(bytes, "made.gguf"), threads);
}

}  // namespace kvant::test
