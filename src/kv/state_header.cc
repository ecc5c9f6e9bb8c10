// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/state_header.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "kv/registry.h"

namespace kvant {
namespace {

// The rule of transforms/rotation.h, in a word. Another rule gets another word.
constexpr std::string_view kRotationRule = "splitmix64(seed+2*layer+side)";
// Frequencies are powers, and mathematics libraries differ in their last bits.
constexpr double kFrequencyTolerance = 1e-9;

std::string RopeText(const RopeGeometry* rope) {
  if (rope == nullptr) return "none";
  std::string text = rope->adjacent_pairs ? "adjacent" : "split";
  for (const double frequency : rope->frequency) text += fmt::format(" {}", frequency);
  return text;
}

// Of all layers; where they differ, each way once and then the way of each layer.
std::string RopeText(const CacheGeometry& geometry) {
  if (geometry.layer_ropes.empty()) return RopeText(geometry.rope.get());
  std::vector<const RopeGeometry*> ways;
  std::string text, layers;
  for (const auto& rope : geometry.layer_ropes) {
    const auto way = std::find(ways.begin(), ways.end(), rope.get());
    layers += fmt::format(" {}", way - ways.begin());
    if (way != ways.end()) continue;
    ways.push_back(rope.get());
    text += fmt::format("{}{}", text.empty() ? "" : " and ", RopeText(rope.get()));
  }
  return ways.size() == 1 ? text : text + " by" + layers;
}

// Every option of the codec, as given or by default, in the order of its record.
std::string FullText(const CodecChoice& choice) {
  std::string text = choice.codec;
  for (const OptionInfo& option : FindCodec(choice.codec)->options) {
    std::string value(option.default_value);
    for (const OptionText& given : choice.options) {
      if (given.name == option.name) value = given.value;
    }
    text += fmt::format(":{}={}", option.name, value);
  }
  return text;
}

// Presets and defaults may change from version to version; what the bytes mean may not.
// A profile stands for its contents, wherever the file lies.
std::string FullText(const Method& method) {
  const MethodSpec& spec = method.spec();
  std::string text = fmt::format(
      "k={},v={},exact={},sink={},window={},k_mean={},smooth={},tail={},read={}", FullText(spec.key),
      FullText(spec.value), spec.exact, spec.sink, spec.window, KeyMeanText(spec.key_transform),
      KeySmoothText(spec.key_transform.smooth), spec.pack_tail ? "packed" : "exact",
      spec.dequantize ? "dequantize" : "codes");
  if (method.profile() != nullptr) {
    text += fmt::format(",profile={:016x}", Hash64Of(FormatKeyProfile(*method.profile())));
  }
  for (const LayerOverride& layers : spec.layers) {
    text += ",layers=";
    for (std::size_t i = 0; i < layers.ranges.size(); ++i) {
      text += fmt::format("{}{}-{}", i == 0 ? "" : "+", layers.ranges[i].first, layers.ranges[i].second);
    }
    if (layers.key) text += ":k=" + FullText(*layers.key);
    if (layers.value) text += ":v=" + FullText(*layers.value);
  }
  return text;
}

// A model's name is bytes of its file; the header is lines.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// Reads "name value" lines in their order.
class LineReader {
 public:
  LineReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::string_view Text(std::string_view field) {
    const std::size_t end = text_.find('\n');
    const std::string_view line = text_.substr(0, end);
    if (end == std::string_view::npos || line.substr(0, field.size()) != field ||
        line.size() <= field.size() || line[field.size()] != ' ') {
      Fail(ErrorCode::kCorruptData,
           "{}: line {} of its header is not the field '{}', so it is not a state that kvant wrote; save "
           "the session again",
           name_, n_lines_ + 1, field);
    }
    ++n_lines_;
    text_.remove_prefix(end + 1);
    return line.substr(field.size() + 1);
  }

  std::uint64_t Number(std::string_view field, int base = 10) {
    const std::string_view text = Text(field);
    std::uint64_t number = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
      Fail(ErrorCode::kCorruptData,
           "{}: its header has a field '{}' that is not a number, so it is not a state that kvant wrote; "
           "save the session again",
           name_, field);
    }
    return number;
  }

  void End() const {
    if (text_.empty()) return;
    Fail(ErrorCode::kCorruptData,
         "{}: its header goes on after the last field, so it is not a state that kvant wrote; save the "
         "session again",
         name_);
  }

 private:
  std::string_view text_;
  const std::string& name_;
  std::size_t n_lines_ = 0;
};

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool SameFrequency(std::string_view a, std::string_view b) {
  double values[2] = {};
  for (const auto& [text, value] : {std::pair(a, &values[0]), std::pair(b, &values[1])}) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return false;
  }
  return std::abs(values[0] - values[1]) <= kFrequencyTolerance * std::abs(values[1]);
}

void CheckRope(const std::string& file, const std::string& here, const std::string& name) {
  const std::vector<std::string_view> got = Words(file);
  const std::vector<std::string_view> want = Words(here);
  constexpr std::string_view kAdvice = "load it with the model it was saved with";
  const std::string_view kind = got.empty() ? std::string_view() : got[0];
  if (kind != want[0] || got.size() != want.size()) {
    Fail(ErrorCode::kInvalidArgument,
         "{}: its rope is {} with {} pairs and the model here has {} with {}; {}", name,
         kind, got.empty() ? 0 : got.size() - 1, want[0], want.size() - 1, kAdvice);
  }
  for (std::size_t i = 1; i < want.size(); ++i) {
    if (got[i] == want[i] || SameFrequency(got[i], want[i])) continue;
    Fail(ErrorCode::kInvalidArgument,
         "{}: its rope turns pair {} by {} and the model here by {}; {}", name, i - 1, got[i], want[i],
         kAdvice);
  }
}

void CheckModel(const StateHeader& header, const Method& method, const RestoreArgs& args) {
  constexpr std::string_view kAdvice = "load it with the model it was saved with";
  if (header.model.fingerprint != args.model.fingerprint) {
    Fail(ErrorCode::kInvalidArgument,
         "{}: its model is '{}' with fingerprint {:016x} and the one here is '{}' with {:016x}; {}",
         args.name, header.model.name, header.model.fingerprint, args.model.name,
         args.model.fingerprint, kAdvice);
  }
  const CacheGeometry& g = method.geometry();
  const struct {
    std::string_view name;
    std::uint64_t file, here;
  } fields[] = {{"layers", header.n_layer, g.n_layer},
                {"kv_heads", header.n_kv_head, g.n_kv_head},
                {"heads_per_kv", header.heads_per_kv, g.heads_per_kv},
                {"head_dim", header.head_dim, g.head_dim}};
  for (const auto& field : fields) {
    if (field.file == field.here) continue;
    Fail(ErrorCode::kInvalidArgument, "{}: its {} is {} and the model here has {}; {}", args.name,
         field.name, field.file, field.here, kAdvice);
  }
  CheckRope(header.rope, RopeText(g), args.name);
}

void CheckMethod(const StateHeader& header, const Method& method, const std::string& name) {
  const std::string options = FullText(method);
  if (header.options == options) return;
  if (const std::string here = method.spec().ToString(); header.method != here) {
    Fail(ErrorCode::kInvalidArgument,
         "{}: its method is '{}' and the one here is '{}'; load it with --kv '{}'", name, header.method,
         here, header.method);
  }
  if (method.profile() != nullptr) {
    Fail(ErrorCode::kInvalidArgument,
         "{}: the profile of its method '{}' was another file when it was saved; load it with that one", name,
         header.method);
  }
  Fail(ErrorCode::kUnsupported,
       "{}: its method '{}' meant '{}' when it was saved and means '{}' in this version; load it with the "
       "version that saved it",
       name, header.method, header.options, options);
}

// What the file says of sizes must be what its own tokens need.
void CheckSizes(const StateHeader& header, const Method& method, const RestoreArgs& args) {
  if (header.n_cached > header.n_tokens) {
    Fail(ErrorCode::kCorruptData, "{}: it says that {} of {} tokens are cached; save the session again",
         args.name, header.n_cached, header.n_tokens);
  }
  // The last token of a session need not be cached.
  const std::uint64_t needed =
      header.n_cached == header.n_tokens ? header.n_tokens : header.n_tokens - 1;
  if (needed > args.max_tokens) {
    Fail(ErrorCode::kInvalidArgument,
         "{}: its session needs a context of {} tokens and the one here holds {}; raise --ctx to {} or "
         "more",
         args.name, needed, args.max_tokens, needed);
  }
  const StateHeader here =
      MakeStateHeader(method, args.model, header.n_tokens, header.n_cached);
  const struct {
    std::string_view name;
    std::uint64_t file, here;
  } fields[] = {{"block_tokens", header.block_tokens, here.block_tokens},
                {"payload_bytes", header.payload_bytes, here.payload_bytes},
                {"resident_bytes", header.resident_bytes, here.resident_bytes},
                {"body_bytes", header.body_bytes, here.body_bytes}};
  for (const auto& field : fields) {
    if (field.file == field.here) continue;
    Fail(ErrorCode::kCorruptData,
         "{}: its {} is {} and a state of these tokens and this method has {}; save the session again "
         "with this version",
         args.name, field.name, field.file, field.here);
  }
}

}  // namespace

std::uint64_t StateBodyBytes(const Method& method, std::size_t n_tokens, std::size_t n_cached) {
  std::uint64_t head_bytes = 0;  // one head of each layer
  for (std::size_t i = 0; i < method.geometry().n_layer && n_cached > 0; ++i) {
    const LayerMethod& layer = method.layer(i);
    const std::size_t n_packed = layer.HeldPacked(n_cached);
    const std::size_t exact_rows =
        n_cached - std::min(n_cached, n_packed * kBlockTokens);
    const std::uint64_t row_bytes = layer.exact_key.geometry.bytes_per_token +
                                    layer.exact_value.geometry.bytes_per_token;
    head_bytes += n_packed * (layer.key.geometry.bytes + layer.value.geometry.bytes) +
                  exact_rows * row_bytes;
    if (n_packed > 0 && layer.sink_bytes() > 0) head_bytes += layer.sink * row_bytes;
    if (layer.transform == nullptr) continue;
    if (layer.energy_bytes() > 0) {
      head_bytes += sizeof(std::uint64_t) + layer.transform->energy_bytes();
    }
    head_bytes += layer.transform->Versions(n_packed) * layer.transform->version_bytes();
  }
  return n_tokens * sizeof(std::int32_t) + head_bytes * method.geometry().n_kv_head;
}

StateHeader MakeStateHeader(const Method& method, const StateModel& model, std::size_t n_tokens,
                            std::size_t n_cached) {
  const CacheGeometry& g = method.geometry();
  StateHeader header;
  header.model = {.name = OneLine(model.name), .fingerprint = model.fingerprint};
  header.n_layer = g.n_layer;
  header.n_kv_head = g.n_kv_head;
  header.heads_per_kv = g.heads_per_kv;
  header.head_dim = g.head_dim;
  header.block_tokens = kBlockTokens;
  header.rope = RopeText(g);
  header.method = method.spec().ToString();
  header.options = FullText(method);
  header.rotation = kRotationRule;
  header.n_tokens = n_tokens;
  header.n_cached = n_cached;
  const PredictedBytes bytes = method.Predict(n_cached);
  header.payload_bytes = bytes.payload;
  // What is packed ahead is not in the file: whoever loads it packs again.
  header.resident_bytes = bytes.resident - method.AheadBytes(n_cached);
  header.body_bytes = StateBodyBytes(method, n_tokens, n_cached);
  return header;
}

std::string FormatStateHeader(const StateHeader& h) {
  return fmt::format(
      "model {}\nfingerprint {:016x}\nlayers {}\nkv_heads {}\nheads_per_kv {}\nhead_dim {}\n"
      "block_tokens {}\nrope {}\nmethod {}\noptions {}\nrotation {}\ntokens {}\ncached {}\n"
      "payload_bytes {}\nresident_bytes {}\nbody_bytes {}\n",
      h.model.name, h.model.fingerprint, h.n_layer, h.n_kv_head, h.heads_per_kv, h.head_dim,
      h.block_tokens, h.rope, h.method, h.options, h.rotation, h.n_tokens, h.n_cached,
      h.payload_bytes, h.resident_bytes, h.body_bytes);
}

StateHeader ParseStateHeader(std::string_view text, const std::string& name) {
  LineReader lines(text, name);
  StateHeader h;
  h.model.name = OneLine(std::string(lines.Text("model")));
  h.model.fingerprint = lines.Number("fingerprint", 16);
  h.n_layer = lines.Number("layers");
  h.n_kv_head = lines.Number("kv_heads");
  h.heads_per_kv = lines.Number("heads_per_kv");
  h.head_dim = lines.Number("head_dim");
  h.block_tokens = lines.Number("block_tokens");
  h.rope = OneLine(std::string(lines.Text("rope")));
  h.method = OneLine(std::string(lines.Text("method")));
  h.options = OneLine(std::string(lines.Text("options")));
  h.rotation = OneLine(std::string(lines.Text("rotation")));
  h.n_tokens = lines.Number("tokens");
  h.n_cached = lines.Number("cached");
  h.payload_bytes = lines.Number("payload_bytes");
  h.resident_bytes = lines.Number("resident_bytes");
  h.body_bytes = lines.Number("body_bytes");
  lines.End();
  return h;
}

void CheckStateHeader(const StateHeader& header, const Method& method, const RestoreArgs& args) {
  CheckModel(header, method, args);
  CheckMethod(header, method, args.name);
  if (header.rotation != kRotationRule) {
    Fail(ErrorCode::kUnsupported,
         "{}: its rotation is '{}' and this version knows '{}'; save the session again with this version",
         args.name, header.rotation, kRotationRule);
  }
  CheckSizes(header, method, args);
}

}  // namespace kvant
