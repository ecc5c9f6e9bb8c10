// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Fuzzer of the method grammar: any bytes give a spec or an Error, and a spec's text gives the spec again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kv/resolved_method.h"
#include "kv/spec.h"
#include "kvant/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const kvant::MethodSpec spec = kvant::ParseMethodSpec(text);
    if (!(kvant::ParseMethodSpec(spec.ToString()) == spec)) std::abort();
    if (!spec.key_transform.profile.empty()) return 0;  // a method reads this file
    const kvant::Method method(
        spec, {.n_layer = 8, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 64});
    const kvant::PredictedBytes bytes = method.Predict(1000);
    if (bytes.payload > bytes.resident) std::abort();
  } catch (const kvant::Error&) {
  }
  return 0;
}
