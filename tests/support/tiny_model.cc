// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/tiny_model.h"

#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/weight_decode.h"

namespace kvant::test {
namespace {

constexpr std::size_t kControlTokens = 3;
// GPT-2 writes the space as U+0120.
#define KVANT_SPACE "\xc4\xa0"
constexpr const char* kMerges[] = {
    KVANT_SPACE " t",
    "h e",
    "i n",
    "r e",
    "o n",
    "e r",
    KVANT_SPACE "t he",
    KVANT_SPACE " a",
    "a t",
    "e n",
    "o r",
    "i t",
    "i s",
    "n d",
    KVANT_SPACE "a nd",
    "l l",
    "o u",
    "in g",
    "1 2",
    "0 0",
    "a n",
    "l e",
    "s t",
    KVANT_SPACE " " KVANT_SPACE,
};
#undef KVANT_SPACE

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

std::string Utf8(unsigned code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

// GPT-2's alphabet of bytes: printable ones stand for themselves, the others are numbered from
// U+0100.
std::vector<std::string> ByteTokens() {
  std::vector<std::string> printable;
  std::vector<std::string> others;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool shown = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                       (byte >= 0xae && byte <= 0xff);
    if (shown) {
      printable.push_back(Utf8(byte));
    } else {
      others.push_back(Utf8(0x100 + static_cast<unsigned>(others.size())));
    }
  }
  printable.insert(printable.end(), others.begin(), others.end());
  return printable;
}

void AddVocabulary(GgufWriter& writer, std::size_t n_vocab) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::int32_t> types(kControlTokens, 3);  // control
  for (std::string& token : ByteTokens()) tokens.push_back(std::move(token));
  std::vector<std::string> merges;
  for (const std::string merge : kMerges) {
    const std::size_t space = merge.find(' ');
    merges.push_back(merge);
    tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  types.resize(tokens.size(), 1);  // normal
  while (tokens.size() < n_vocab) tokens.push_back(fmt::format("<|unused_{}|>", tokens.size()));
  types.resize(tokens.size(), 5);  // unused
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer.AddArray("tokenizer.ggml.token_type", types);
  writer.AddStringArray("tokenizer.ggml.merges", merges);
  writer.Add<std::uint32_t>("tokenizer.ggml.bos_token_id", 0);
  writer.Add<std::uint32_t>("tokenizer.ggml.eos_token_id", 2);
  writer.Add<bool>("tokenizer.ggml.add_bos_token", false);
  writer.AddString("tokenizer.chat_template", kChatTemplate);
}

void AddGeometry(GgufWriter& writer, const TinyModelOptions& options, std::size_t n_vocab) {
  const auto key = [&options](const char* name) { return options.architecture + "." + name; };
  const auto count = [&](const char* name, std::size_t value) {
    writer.Add(key(name), static_cast<std::uint32_t>(value));
  };
  writer.AddString("general.architecture", options.architecture);
  writer.AddString("general.name", "kvant tiny");
  count("block_count", options.n_layer);
  count("context_length", options.ctx);
  count("embedding_length", options.n_embd);
  count("feed_forward_length", options.n_ff);
  count("attention.head_count", options.n_q_head);
  count("attention.head_count_kv", options.n_kv_head);
  if (options.head_dim * options.n_q_head != options.n_embd) {
    count("attention.key_length", options.head_dim);
    count("attention.value_length", options.head_dim);
  }
  count("rope.dimension_count", options.n_rot == 0 ? options.head_dim : options.n_rot);
  writer.Add(key("rope.freq_base"), static_cast<float>(options.rope_base));
  if (!options.rope_scaling.empty()) {
    writer.AddString(key("rope.scaling.type"), options.rope_scaling);
    writer.Add(key("rope.scaling.factor"), 4.0f);
    count("rope.scaling.original_context_length", 64);
  }
  if (options.window != 0) count("attention.sliding_window", options.window);
  writer.Add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  count("vocab_size", n_vocab);
}

class WeightMaker {
 public:
  WeightMaker(GgufWriter& writer, const TinyModelOptions& options)
      : writer_(writer), without_(options.without), rng_(options.seed) {}

  // Rows of n_in values with the deviation gain / sqrt(n_in): a product with inputs of unit size
  // has entries of size `gain`. The first `quiet_rows` rows are almost nothing.
  void Matrix(const std::string& name, WeightType type, std::size_t n_in, std::size_t n_out,
              double gain, std::size_t quiet_rows = 0) {
    std::vector<double> values(n_in * n_out);
    const double deviation = gain / std::sqrt(static_cast<double>(n_in));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = Noise() * deviation * (i / n_in < quiet_rows ? 1.0 / 64 : 1.0);
    }
    Tensor(name, type, {n_in, n_out}, values);
  }

  void Norm(const std::string& name, std::size_t size) {
    std::vector<double> values(size);
    for (double& value : values) value = 1 + 0.1 * Noise();
    Tensor(name, WeightType::kF32, {size}, values);
  }

  void Bias(const std::string& name, std::size_t size) {
    std::vector<double> values(size);
    for (double& value : values) value = 0.5 * Noise();
    Tensor(name, WeightType::kF32, {size}, values);
  }

  void Tensor(const std::string& name, WeightType type, const std::vector<std::uint64_t>& dims,
              const std::vector<double>& values) {
    if (name == without_) return;
    writer_.AddTensor(name, static_cast<std::uint32_t>(type), dims, EncodeWeights(type, values));
  }

 private:
  // Mean 0, deviation 1, from additions and one exact square root: a normal generator calls log and
  // cos, whose last bits differ between C libraries.
  double Noise() {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += rng_.Uniform();
    return sum * std::sqrt(3.0);
  }

  GgufWriter& writer_;
  const std::string& without_;
  SplitMix64 rng_;
};

// What only some architectures have.
void AddExtras(WeightMaker& maker, const TinyModelOptions& options, std::size_t layer) {
  const auto name = [layer](const char* part) { return fmt::format("blk.{}.{}", layer, part); };
  const std::string& architecture = options.architecture;
  if (architecture == "qwen2") {
    maker.Bias(name("attn_q.bias"), options.n_q_head * options.head_dim);
    maker.Bias(name("attn_k.bias"), options.n_kv_head * options.head_dim);
    maker.Bias(name("attn_v.bias"), options.n_kv_head * options.head_dim);
  }
  if (architecture == "qwen3" || architecture == "gemma3") {
    maker.Norm(name("attn_q_norm.weight"), options.head_dim);
    maker.Norm(name("attn_k_norm.weight"), options.head_dim);
  }
  if (architecture == "gemma3") {
    maker.Norm(name("post_attention_norm.weight"), options.n_embd);
    maker.Norm(name("post_ffw_norm.weight"), options.n_embd);
  }
}

}  // namespace

std::size_t TinyVocabularySize() { return kControlTokens + 256 + std::size(kMerges); }

std::vector<std::byte> TinyModelBytes(const TinyModelOptions& options) {
  const std::size_t n_vocab = options.n_vocab == 0 ? TinyVocabularySize() : options.n_vocab;
  KVANT_CHECK(n_vocab >= TinyVocabularySize());
  GgufWriter writer;
  AddGeometry(writer, options, n_vocab);
  AddVocabulary(writer, n_vocab);

  // Gains: scores of deviation about 2 (peaked, not one-hot), logits of about 2.5.
  const std::size_t n_embd = options.n_embd;
  const std::size_t q_size = options.n_q_head * options.head_dim;
  const std::size_t kv_size = options.n_kv_head * options.head_dim;
  const std::size_t rotated = options.n_rot == 0 ? options.head_dim : options.n_rot;
  WeightMaker maker(writer, options);
  maker.Matrix("token_embd.weight", options.embedding_type, n_embd, n_vocab, 2.5, kControlTokens);
  for (std::size_t layer = 0; layer < options.n_layer; ++layer) {
    const auto name = [layer](const char* part) {
      return fmt::format("blk.{}.{}.weight", layer, part);
    };
    maker.Norm(name("attn_norm"), n_embd);
    maker.Matrix(name("attn_q"), options.attention_type, n_embd, q_size, 1.4);
    maker.Matrix(name("attn_k"), options.attention_type, n_embd, kv_size, 1.4);
    maker.Matrix(name("attn_v"), options.attention_type, n_embd, kv_size, 1);
    maker.Matrix(name("attn_output"), options.attention_type, q_size, n_embd, 0.7);
    maker.Norm(name("ffn_norm"), n_embd);
    maker.Matrix(name("ffn_gate"), options.feed_forward_type, n_embd, options.n_ff, 1.4);
    maker.Matrix(name("ffn_up"), options.feed_forward_type, n_embd, options.n_ff, 1);
    maker.Matrix(name("ffn_down"), options.feed_forward_type, options.n_ff, n_embd, 0.7);
    AddExtras(maker, options, layer);
  }
  maker.Norm("output_norm.weight", n_embd);
  if (!options.tied) {
    maker.Matrix("output.weight", options.head_type, n_embd, n_vocab, 2.5, kControlTokens);
  }
  if (options.rope_freqs) {
    std::vector<double> factors(rotated / 2);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i] = 1 + 3.0 * static_cast<double>(i) / static_cast<double>(factors.size());
    }
    maker.Tensor("rope_freqs.weight", WeightType::kF32, {factors.size()}, factors);
  }
  return writer.Build();
}

void WriteTinyModel(const std::string& path, const TinyModelOptions& options) {
  WriteFileBytes(path, TinyModelBytes(options));
}

}  // namespace kvant::test
