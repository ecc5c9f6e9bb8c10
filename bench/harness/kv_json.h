// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// KvReport as JSON, with the key names of the command line contract.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace kvant::bench {

inline nlohmann::json KvToJson(const KvReport& kv) {
  return {{"spec", kv.spec},
          {"payload_bytes", kv.payload_bytes},
          {"resident_bytes", kv.resident_bytes},
          {"peak_bytes", kv.peak_bytes},
          {"packed_tokens", kv.packed_tokens},
          {"exact_tokens", kv.exact_tokens},
          {"kernel", kv.kernel},
          {"path", kv.path}};
}

/// Throws nlohmann::json::exception for a missing or mistyped key.
inline KvReport KvFromJson(const nlohmann::json& json) {
  KvReport kv;
  json.at("spec").get_to(kv.spec);
  json.at("payload_bytes").get_to(kv.payload_bytes);
  json.at("resident_bytes").get_to(kv.resident_bytes);
  json.at("peak_bytes").get_to(kv.peak_bytes);
  json.at("packed_tokens").get_to(kv.packed_tokens);
  json.at("exact_tokens").get_to(kv.exact_tokens);
  json.at("kernel").get_to(kv.kernel);
  json.at("path").get_to(kv.path);
  return kv;
}

}  // namespace kvant::bench
