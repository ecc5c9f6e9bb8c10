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

std::optional<std::size_t> Number(std::string_view text) {
  std::size_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  MethodSpec Parse() {
    if (text_.size() > kMaxSpecBytes) {
      Fail(ErrorCode::kInvalidArgument, "the method text has {} characters; at most {} are allowed",
           text_.size(), kMaxSpecBytes);
    }
    const auto control = std::find_if(text_.begin(), text_.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (control != text_.end()) {
      Fail(ErrorCode::kInvalidArgument, "character {} of the method text is a control character; remove it",
           control - text_.begin() + 1);
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
        const Piece& extra = parts[name == "k_mean" && value.text == "refreeze" ? 2 : 1];
        FailAt(extra.position, "'{}=' takes no options; remove ':{}'", name, extra.text);
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
      if (value.text.empty()) FailAt(value.position, "profile= needs the path of a file, without ','");
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
      const std::optional<std::size_t> tokens = Number(number.text);
      if (!tokens || *tokens == 0 || *tokens > kMaxWindow || *tokens % kBlockTokens != 0) {
        FailAt(number.position, "refreeze:{} is not allowed; allowed: a multiple of {} from {} to {}",
               number.text, kBlockTokens, kBlockTokens, kMaxWindow);
      }
      transform.refreeze_tokens = *tokens;
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
    for (std::size_t i = 1; i < parts.size(); ++i) {
      Piece option = parts[i];
      if (option.text == "k_mean=refreeze" && i + 1 < parts.size()) {  // one value, "k_mean=refreeze:512"
        option.text = {option.text.data(), option.text.size() + 1 + parts[++i].text.size()};
      }
      AddPresetOption(option);
    }
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
    if (std::find(std::begin(kKeyNames), std::end(kKeyNames), name) == std::end(kKeyNames)) {
      FailAt(option.position, "there is no option '{}' here; allowed: {}", name, AllowedPresetOptions());
    }
    if (name.size() == option.text.size()) {
      FailAt(option.position, "option '{}' has no value; write {}=VALUE", name, name);
    }
    if (std::find(preset_keys_.begin(), preset_keys_.end(), name) != preset_keys_.end()) {
      FailAt(option.position, "option '{}' is given twice", name);
    }
    preset_keys_.push_back(name);
    ParseKey(name, {option.text.substr(name.size() + 1), option.position + name.size() + 1},
             option.position);
  }

  std::string AllowedPresetOptions() const {
    std::vector<std::string_view> names;
    for (const CodecChoice* choice : {&spec_.key, &spec_.value}) {
      for (const OptionInfo& info : FindCodec(choice->codec)->options) names.push_back(info.name);
    }
    names.insert(names.end(), std::begin(kKeyNames), std::end(kKeyNames));
    std::string text;
    for (auto name = names.begin(); name != names.end(); ++name) {
      if (std::find(names.begin(), name, *name) == name) text += fmt::format("{}{}=", text.empty() ? "" : ", ", *name);
    }
    return text;
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
    const CodecRecord& codec = *FindCodec(choice.codec);
    for (const OptionText& option : choice.options) {  // the value itself, where it is wrong by itself
      if (option.position == kFromPreset) continue;
      try {
        static_cast<void>(codec.parse_config({&option, 1}));
      } catch (const Error& error) {
        FailAt(option.position + option.name.size() + 1, "{}", error.what());
      }
    }
    try {
      static_cast<void>(codec.parse_config(choice.options));
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
    const std::optional<std::size_t> number = Number(piece.text);
    if (!number || *number > max) {
      FailAt(piece.position, "'{}' is not allowed for {}; allowed: a whole number from 0 to {}",
             piece.text, what, max);
    }
    return *number;
  }

  std::string_view text_;
  MethodSpec spec_;
  std::vector<std::string_view> seen_;
  std::vector<std::string_view> preset_keys_;  // keys of the method given as options of a preset
  std::size_t profile_at_ = 0;
};

}  // namespace

MethodSpec ParseMethodSpec(std::string_view text) { return Parser(text).Parse(); }

}  // namespace kvant
