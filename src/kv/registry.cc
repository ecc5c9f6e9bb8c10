// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/registry.h"

#include <vector>

#include "base/error.h"

namespace kvant {
namespace {

std::vector<const CodecRecord*>& TestCodecs() {
  static std::vector<const CodecRecord*> codecs;
  return codecs;
}

}  // namespace

#define KVANT_CODEC(name)           \
  namespace name {                  \
  const CodecRecord& GetCodec();    \
  }
#include "kv/codecs/codecs.inc"
#undef KVANT_CODEC

std::span<const CodecRecord* const> Codecs() {
  static const CodecRecord* const kTable[] = {
#define KVANT_CODEC(name) &name::GetCodec(),
#include "kv/codecs/codecs.inc"
#undef KVANT_CODEC
  };
  return kTable;
}

// The table is empty until the first policy is registered, and C++ has no array of none.
std::span<const PolicyRecord* const> Policies() { return {}; }

const CodecRecord* FindCodec(std::string_view name) {
  for (const CodecRecord* codec : Codecs()) {
    if (codec->name == name) return codec;
  }
  for (const CodecRecord* codec : TestCodecs()) {
    if (codec->name == name) return codec;
  }
  return nullptr;
}

void AddTestCodec(const CodecRecord& codec) { TestCodecs().push_back(&codec); }

const PresetInfo* FindPreset(std::string_view name) {
  for (const CodecRecord* codec : Codecs()) {
    for (const PresetInfo& preset : codec->presets) {
      if (preset.name == name) return &preset;
    }
  }
  return nullptr;
}

namespace {

void AppendName(std::string& names, std::string_view name) {
  if (!names.empty()) names += ", ";
  names += name;
}

}  // namespace

std::string CodecNames() {
  std::string names;
  for (const CodecRecord* codec : Codecs()) AppendName(names, codec->name);
  return names;
}

std::string PresetNames() {
  std::string names;
  for (const CodecRecord* codec : Codecs()) {
    for (const PresetInfo& preset : codec->presets) AppendName(names, preset.name);
  }
  return names;
}

std::string PolicyNames() {
  std::string names;
  for (const PolicyRecord* policy : Policies()) AppendName(names, policy->name);
  return names.empty() ? "none in this version" : names;
}

}  // namespace kvant
