// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Method specs as text, and their equality.
#include <fmt/format.h>

#include <algorithm>

#include "kv/registry.h"
#include "kv/spec.h"

namespace kvant {
namespace {

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
      MethodSpec expanded = ParseMethodSpec(preset.expansion);
      expanded.layers = spec.layers;
      expanded.key_transform.profile = spec.key_transform.profile;
      if (expanded == spec) return &preset;
    }
  }
  return nullptr;
}

}  // namespace

bool operator==(const CodecChoice& a, const CodecChoice& b) {
  return ChoiceText(a) == ChoiceText(b);
}

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
    if (key_transform.smooth != KeySmooth::kOff)
      text += ",smooth=" + KeySmoothText(key_transform.smooth);
    if (pack_tail) text += ",tail=packed";
    if (dequantize) text += ",read=dequantize";
  }
  if (!key_transform.profile.empty()) text += ",profile=" + key_transform.profile;
  for (const LayerOverride& layer : layers) text += "," + LayersText(layer);
  return text;
}

}  // namespace kvant
