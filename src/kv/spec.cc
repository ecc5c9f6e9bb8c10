// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/spec.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "kv/registry.h"

namespace kvant {
namespace {

constexpr std::string_view kItemNames =
    "k=, v=, values=, exact=, sink=, window=, k_mean=, smooth=, profile=, tail=, read=, layers=, "
    "evict=";
constexpr std::string_view kKeyNames[] = {"exact",  "sink",    "window", "k_mean",
                                          "smooth", "profile", "tail",   "read"};
constexpr std::size_t kMaxSpecBytes = 4096;
constexpr std::size_t kFromPreset = std::numeric_limits<std::size_t>::max();  // place of such options
constexpr std::size_t kMaxWindow = std::size_t{1} << 30;
constexpr std::size_t kMaxLayer = 1 << 20;

// A piece of the text with its place in it.
struct Piece {
  std::string_view text;
  std::size_t position = 0;
};

std::vector<Piece> Split(Piece piece, char separator) {
  std::vector<Piece> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t end = piece.text.find(separator, start);
    parts.push_back({piece.text.substr(start, end - start), piece.position + start});
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  MethodSpec Parse() {
    if (text_.size() > kMaxSpecBytes) {
      Fail(ErrorCode::kInvalidArgument, "the method text has {} characters; at most {} are allowed",
           text_.size(), kMaxSpecBytes);
    }
    bool first = true;
    for (const Piece& item : Split({text_, 0}, ',')) {
      ParseItem(item, first);
      first = false;
    }
    const KeyTransformSpec& transform = spec_.key_transform;
    if (!transform.profile.empty() && transform.smooth == KeySmooth::kOff) {
      FailAt(profile_at_, "profile= is what smooth= is taken from, and it is off; add smooth=balanced_pair");
    }
    return std::move(spec_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void FailAt(std::size_t position, fmt::format_string<Args...> format, Args&&... args) {
    Fail(ErrorCode::kInvalidArgument, "method '{}', character {}: {}", text_, position + 1,
         fmt::format(format, std::forward<Args>(args)...));
  }

  void ParseItem(Piece item, bool first) {
    const std::vector<Piece> parts = Split(item, ':');
    const std::size_t equals = parts[0].text.find('=');
    if (equals == std::string_view::npos) return ParsePreset(parts, first);
    const std::string_view name = parts[0].text.substr(0, equals);
    const Piece value = {parts[0].text.substr(equals + 1), item.position + equals + 1};
    if (!seen_.empty() && std::find(seen_.begin(), seen_.end(), name) != seen_.end() &&
        name != "layers") {
      FailAt(item.position, "'{}=' is given twice; give it once", name);
    }
    seen_.push_back(name);
    if (name == "k") {
      spec_.key = ParseCodec(value, {parts.begin() + 1, parts.end()});
    } else if (name == "v" || name == "values") {
      CheckOneValueName(item.position);
      spec_.value = ParseCodec(value, {parts.begin() + 1, parts.end()});
    } else if (name == "layers") {
      ParseLayers(value, parts);
    } else if (name == "evict") {
      FailAt(value.position, "unknown policy '{}'; allowed: {}", value.text, PolicyNames());
    } else {
      // "k_mean=refreeze:512" and a path with ':' in it are one value.
      const bool joined = name == "profile" ||
                          (name == "k_mean" && value.text == "refreeze" && parts.size() == 2);
      if (parts.size() > 1 && !joined) {
        FailAt(parts[1].position, "'{}=' takes no options; remove ':{}'", name, parts[1].text);
      }
      const std::size_t value_at = equals + 1;
      ParseKey(name, joined ? Piece{item.text.substr(value_at), value.position} : value,
               item.position);
    }
  }

  void ParseKey(std::string_view name, Piece value, std::size_t position) {
    if (name == "exact") {
      if (value.text != "fp16" && value.text != "bf16") {
        FailAt(value.position, "exact='{}' is not a 16-bit type; allowed: fp16, bf16", value.text);
      }
      spec_.exact = value.text;
    } else if (name == "sink") {
      spec_.sink = ParseNumber(value, kBlockTokens, "sink");
    } else if (name == "window") {
      spec_.window = ParseNumber(value, kMaxWindow, "window");
      if (spec_.window % kBlockTokens != 0) {
        FailAt(value.position, "window={} is not a multiple of {}; use {} or {}", spec_.window,
               kBlockTokens, spec_.window / kBlockTokens * kBlockTokens,
               (spec_.window / kBlockTokens + 1) * kBlockTokens);
      }
    } else if (name == "k_mean") {
      ParseKeyMean(value);
    } else if (name == "smooth") {
      ParseKeySmooth(value);
    } else if (name == "profile") {
      const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
      if (value.text.empty() || std::any_of(value.text.begin(), value.text.end(), control)) {
        FailAt(value.position, "profile= needs the path of a file, without ',' and control characters");
      }
      spec_.key_transform.profile = value.text;
      profile_at_ = position;
    } else if (name == "tail") {
      spec_.pack_tail = ParseChoice(value, "tail", "exact", "packed");
    } else if (name == "read") {
      spec_.dequantize = ParseChoice(value, "read", "codes", "dequantize");
    } else {
      FailAt(position, "unknown item '{}='; allowed: {}", name, kItemNames);
    }
  }

  // One of two words; true for the second.
  bool ParseChoice(Piece value, std::string_view name, std::string_view first,
                   std::string_view second) {
    if (value.text != first && value.text != second) {
      FailAt(value.position, "{}='{}' is not known; allowed: {}, {}", name, value.text, first, second);
    }
    return value.text == second;
  }

  void ParseKeyMean(Piece value) {
    KeyTransformSpec& transform = spec_.key_transform;
    transform.refreeze_tokens = 0;
    constexpr std::string_view kRefreeze = "refreeze:";
    if (value.text.starts_with(kRefreeze)) {
      const Piece number = {value.text.substr(kRefreeze.size()), value.position + kRefreeze.size()};
      transform.mean = KeyMean::kRefreeze;
      transform.refreeze_tokens = ParseNumber(number, kMaxWindow, "refreeze");
      if (transform.refreeze_tokens == 0 || transform.refreeze_tokens % kBlockTokens != 0) {
        FailAt(number.position, "refreeze:{} is not allowed; allowed: a multiple of {} above 0",
               number.text, kBlockTokens);
      }
      return;
    }
    for (const KeyMean mean : {KeyMean::kOff, KeyMean::kBlock0, KeyMean::kRope}) {
      transform.mean = mean;
      if (value.text == KeyMeanText(transform)) return;
    }
    FailAt(value.position, "k_mean='{}' is not known; allowed: off, block0, refreeze:N, rope", value.text);
  }

  void ParseKeySmooth(Piece value) {
    for (const KeySmooth smooth : {KeySmooth::kOff, KeySmooth::kBalanced, KeySmooth::kBalancedPair,
                                   KeySmooth::kSigma, KeySmooth::kMax}) {
      spec_.key_transform.smooth = smooth;
      if (value.text == KeySmoothText(smooth)) return;
    }
    FailAt(value.position,
           "smooth='{}' is not known; allowed: off, balanced, balanced_pair, sigma, max", value.text);
  }

  void ParsePreset(const std::vector<Piece>& parts, bool first) {
    const PresetInfo* preset = FindPreset(parts[0].text);
    if (preset == nullptr) {
      if (parts[0].text.empty()) {
        FailAt(parts[0].position, "nothing is given here; allowed: {}, {}", PresetNames(), kItemNames);
      }
      FailAt(parts[0].position, "unknown method '{}'; allowed: {}, {}", parts[0].text, PresetNames(),
             kItemNames);
    }
    if (!first) {
      FailAt(parts[0].position, "'{}' is a whole method and may only come first; set parts with {}",
             parts[0].text, kItemNames);
    }
    spec_ = Parser(preset->expansion).Parse();
    for (CodecChoice* choice : {&spec_.key, &spec_.value}) {
      for (OptionText& option : choice->options) option.position = kFromPreset;
    }
    for (std::size_t i = 1; i < parts.size(); ++i) AddPresetOption(parts[i]);
    CheckConfig(spec_.key, parts[0].position);
    CheckConfig(spec_.value, parts[0].position);
  }

  // To each codec that has such an option, else to the method.
  void AddPresetOption(Piece option) {
    const std::string_view name = option.text.substr(0, option.text.find('='));
    const bool key = HasOption(spec_.key, name);
    const bool value = HasOption(spec_.value, name);
    if (key) AddOption(spec_.key, option);
    if (value) AddOption(spec_.value, option);
    if (key || value) return;
    const bool method = std::find(std::begin(kKeyNames), std::end(kKeyNames), name) != std::end(kKeyNames);
    if (!method || name.size() == option.text.size()) AddOption(spec_.key, option);  // says what is allowed
    ParseKey(name, {option.text.substr(name.size() + 1), option.position + name.size() + 1},
             option.position);
  }

  static bool HasOption(const CodecChoice& choice, std::string_view name) {
    const auto options = FindCodec(choice.codec)->options;
    return std::any_of(options.begin(), options.end(),
                       [name](const OptionInfo& info) { return info.name == name; });
  }

  void CheckOneValueName(std::size_t position) {
    if (std::count(seen_.begin(), seen_.end(), "v") + std::count(seen_.begin(), seen_.end(), "values") >
        1) {
      FailAt(position, "both 'v=' and 'values=' are given; they mean the same, give one");
    }
  }

  CodecChoice ParseCodec(Piece name, std::vector<Piece> options) {
    if (FindCodec(name.text) == nullptr) {
      FailAt(name.position, "unknown codec '{}'; allowed: {}", name.text, CodecNames());
    }
    CodecChoice choice{.codec = std::string(name.text), .options = {}};
    for (const Piece& option : options) AddOption(choice, option);
    CheckConfig(choice, name.position);
    return choice;
  }

  // What a preset says may be said anew, once.
  void AddOption(CodecChoice& choice, Piece option) {
    const CodecRecord& codec = *FindCodec(choice.codec);
    const std::size_t equals = option.text.find('=');
    const std::string_view name = option.text.substr(0, equals);
    std::string allowed;
    bool known = false;
    for (const OptionInfo& info : codec.options) {
      allowed += fmt::format("{}{}=", allowed.empty() ? "" : ", ", info.name);
      known |= info.name == name;
    }
    if (!known) {
      FailAt(option.position, "codec '{}' has no option '{}'; allowed: {}", codec.name, name,
             allowed.empty() ? "none, it takes no options" : allowed);
    }
    if (equals == std::string_view::npos) {
      FailAt(option.position, "option '{}' has no value; write {}=VALUE", name, name);
    }
    for (auto given = choice.options.begin(); given != choice.options.end(); ++given) {
      if (given->name != name) continue;
      if (given->position != kFromPreset) {
        FailAt(option.position, "option '{}' is given twice", name);
      }
      choice.options.erase(given);
      break;
    }
    choice.options.push_back({.name = std::string(name),
                              .value = std::string(option.text.substr(equals + 1)),
                              .position = option.position});
  }

  // Values are checked by the codec itself; its sentence gets the place.
  void CheckConfig(const CodecChoice& choice, std::size_t position) {
    try {
      static_cast<void>(FindCodec(choice.codec)->parse_config(choice.options));
    } catch (const Error& error) {
      FailAt(position, "{}", error.what());
    }
  }

  void ParseLayers(Piece ranges, const std::vector<Piece>& parts) {
    LayerOverride layers;
    for (const Piece& range : Split(ranges, '+')) {
      const std::vector<Piece> ends = Split(range, '-');
      if (ends.size() > 2) FailAt(range.position, "'{}' is not a range; write N or N-N", range.text);
      const std::size_t begin = ParseNumber(ends[0], kMaxLayer, "a layer");
      const std::size_t end = ends.size() == 2 ? ParseNumber(ends[1], kMaxLayer, "a layer") : begin;
      if (end < begin) {
        FailAt(range.position, "range {}-{} runs backwards; write {}-{}", begin, end, end, begin);
      }
      layers.ranges.emplace_back(begin, end);
    }
    std::optional<CodecChoice>* current = nullptr;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::string_view text = parts[i].text;
      const bool key = text.starts_with("k=");
      if (key || text.starts_with("v=")) {
        current = key ? &layers.key : &layers.value;
        if (current->has_value()) FailAt(parts[i].position, "'{}' is given twice", text.substr(0, 2));
        *current = ParseCodec({text.substr(2), parts[i].position + 2}, {});
      } else if (current != nullptr) {
        AddOption(**current, parts[i]);
        CheckConfig(**current, parts[i].position);
      } else {
        FailAt(parts[i].position, "'{}' is not allowed after layers=; allowed: k=CODEC, v=CODEC", text);
      }
    }
    if (current == nullptr) {
      FailAt(ranges.position, "layers={} changes nothing; add :k=CODEC or :v=CODEC", ranges.text);
    }
    spec_.layers.push_back(std::move(layers));
  }

  std::size_t ParseNumber(Piece piece, std::size_t max, std::string_view what) {
    std::size_t number = 0;
    const char* end = piece.text.data() + piece.text.size();
    const auto result = std::from_chars(piece.text.data(), end, number);
    if (result.ec != std::errc() || result.ptr != end || number > max) {
      FailAt(piece.position, "'{}' is not allowed for {}; allowed: a whole number from 0 to {}",
             piece.text, what, max);
    }
    return number;
  }

  std::string_view text_;
  MethodSpec spec_;
  std::vector<std::string_view> seen_;
  std::size_t profile_at_ = 0;
};

std::string ChoiceText(const CodecChoice& choice) {
  std::string text = choice.codec;
  std::vector<OptionText> options = choice.options;
  std::sort(options.begin(), options.end(),
            [](const OptionText& a, const OptionText& b) { return a.name < b.name; });
  for (const OptionText& option : options) text += fmt::format(":{}={}", option.name, option.value);
  return text;
}

std::string LayersText(const LayerOverride& layers) {
  std::string text = "layers=";
  for (std::size_t i = 0; i < layers.ranges.size(); ++i) {
    const auto& [begin, end] = layers.ranges[i];
    text += i == 0 ? "" : "+";
    text += begin == end ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end);
  }
  if (layers.key) text += ":k=" + ChoiceText(*layers.key);
  if (layers.value) text += ":v=" + ChoiceText(*layers.value);
  return text;
}

// The preset that says exactly what the spec says (layers and profile aside), if there is one.
const PresetInfo* MatchingPreset(const MethodSpec& spec) {
  for (const CodecRecord* codec : Codecs()) {
    for (const PresetInfo& preset : codec->presets) {
      MethodSpec expanded = Parser(preset.expansion).Parse();
      expanded.layers = spec.layers;
      expanded.key_transform.profile = spec.key_transform.profile;
      if (expanded == spec) return &preset;
    }
  }
  return nullptr;
}

}  // namespace

bool operator==(const CodecChoice& a, const CodecChoice& b) { return ChoiceText(a) == ChoiceText(b); }

bool operator==(const LayerOverride& a, const LayerOverride& b) {
  return a.ranges == b.ranges && a.key == b.key && a.value == b.value;
}

bool operator==(const MethodSpec& a, const MethodSpec& b) {
  return a.key == b.key && a.value == b.value && a.exact == b.exact && a.sink == b.sink &&
         a.window == b.window && a.key_transform == b.key_transform && a.pack_tail == b.pack_tail &&
         a.dequantize == b.dequantize && a.layers == b.layers;
}

std::string MethodSpec::ToString() const {
  std::string text;
  if (const PresetInfo* preset = MatchingPreset(*this); preset != nullptr) {
    text = preset->name;
  } else {
    text = fmt::format("k={},v={}", ChoiceText(key), ChoiceText(value));
    if (exact != MethodSpec{}.exact) text += ",exact=" + exact;
    if (sink != 0) text += fmt::format(",sink={}", sink);
    if (window != 0) text += fmt::format(",window={}", window);
    if (key_transform.mean != KeyMean::kOff) text += ",k_mean=" + KeyMeanText(key_transform);
    if (key_transform.smooth != KeySmooth::kOff) text += ",smooth=" + KeySmoothText(key_transform.smooth);
    if (pack_tail) text += ",tail=packed";
    if (dequantize) text += ",read=dequantize";
  }
  if (!key_transform.profile.empty()) text += ",profile=" + key_transform.profile;
  for (const LayerOverride& layer : layers) text += "," + LayersText(layer);
  return text;
}

MethodSpec ParseMethodSpec(std::string_view text) { return Parser(text).Parse(); }

}  // namespace kvant
