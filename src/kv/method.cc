// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/method.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace kvant {

std::string_view StorageKindName(StorageKind kind) {
  switch (kind) {
    case StorageKind::kExact: return "exact";
    case StorageKind::kPacked: return "packed";
    case StorageKind::kSimulated: return "simulated";
  }
  return "unknown";
}

std::string Exactness::ToString() const {
  switch (kind) {
    case Kind::kBitExact: return "bit-exact";
    case Kind::kUlp: return fmt::format("{:g} ulp", bound);
    case Kind::kTolerance: return fmt::format("within {:g}", bound);
  }
  return "unknown";
}

std::shared_ptr<const CodecConfig> BindCodec(const CodecRecord& codec,
                                             std::span<const OptionText> options,
                                             const BindArgs& args) {
  std::shared_ptr<const CodecConfig> parsed = codec.parse_config(options);
  return codec.bind == nullptr ? parsed : codec.bind(*parsed, args);
}

std::shared_ptr<const CodecConfig> BindCodec(const CodecRecord& codec, std::string_view options,
                                             const BindArgs& args) {
  std::vector<OptionText> parts;
  while (!options.empty()) {
    const std::string_view part = options.substr(0, options.find(':'));
    options.remove_prefix(std::min(options.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    KVANT_CHECK(equals != std::string_view::npos);
    parts.push_back({.name = std::string(part.substr(0, equals)),
                     .value = std::string(part.substr(equals + 1)),
                     .position = 0});
  }
  return BindCodec(codec, parts, args);
}

const KernelSet& KernelSetOf(const CodecRecord& codec, Isa isa) {
  for (const KernelSet& set : codec.kernels()) {
    if (set.isa == isa) return set;
  }
  std::string names;
  for (const KernelSet& set : codec.kernels()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", IsaName(set.isa));
  }
  Fail(ErrorCode::kUnsupported, "codec '{}' has no kernel '{}'; it has: {}", codec.name,
       IsaName(isa), names);
}

}  // namespace kvant
