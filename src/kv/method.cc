// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/method.h"

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
