// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Makes a tiny random model of any architecture that kvant runs as a GGUF file, so that the whole product
// runs in tests without a download. The text it generates means nothing; its logits are finite and
// spread enough that an error anywhere in the forward pass changes the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llm/gguf.h"

namespace kvant::test {

struct TinyModelOptions {
  std::string architecture = "llama";  // llama, qwen2, qwen3, gemma3
  std::size_t n_layer = 2;
  std::size_t n_embd = 64;
  std::size_t n_ff = 96;
  std::size_t n_q_head = 4;
  std::size_t n_kv_head = 2;
  std::size_t head_dim = 16;  // written as key_length and value_length unless n_embd / n_q_head
  std::size_t n_rot = 0;      // 0: head_dim
  std::size_t n_vocab = 0;    // 0: the built-in vocabulary; more: padded with unused tokens
  std::size_t ctx = 2048;
  double rope_base = 10000;
  bool rope_freqs = false;  // a rope_freqs.weight tensor with factors from 1 to 4
  std::string rope_scaling = {};  // "", "linear" or "yarn", by 4 from a context of 64 tokens
  std::size_t window = 0;    // sliding_window; 0: not written
  bool tied = true;         // the embedding is the output head as well

  // Rows of block types hold multiples of 32 values.
  WeightType embedding_type = WeightType::kF32;
  WeightType attention_type = WeightType::kF32;     // q, k, v, output
  WeightType feed_forward_type = WeightType::kF32;  // gate, up, down
  WeightType head_type = WeightType::kF32;          // untied only

  std::string without = {};  // a tensor that is left out of the file

  std::uint64_t seed = 1;
};

/// Tokens of the built-in vocabulary: <|endoftext|> (0, also bos), <|im_start|> (1), <|im_end|>
/// (2, eos), the 256 byte tokens in GPT-2's order, then one token for each merge.
std::size_t TinyVocabularySize();

/// The file's bytes: the same for the same options on every machine. Greedy answers seldom end by
/// themselves: the logits of the control tokens stay near 0.
std::vector<std::byte> TinyModelBytes(const TinyModelOptions& options);
/// Writes them to a file; throws Error when that fails.
void WriteTinyModel(const std::string& path, const TinyModelOptions& options);

}  // namespace kvant::test
