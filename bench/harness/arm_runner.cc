// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/arm_runner.h"

#include <algorithm>

#include "base/error.h"

namespace kvant::bench {

std::vector<Arm> MakeArms(const std::vector<std::string>& specs) {
  std::vector<Arm> arms;
  for (const std::string& spec : specs) {
    const bool seen =
        std::any_of(arms.begin(), arms.end(), [&](const Arm& arm) { return arm.spec == spec; });
    if (seen || spec.empty()) {
      Fail(ErrorCode::kInvalidArgument,
           "the arms hold \"{}\" {}; give different methods, the baseline is repeated by itself",
           spec, seen ? "twice" : "(an empty method)");
    }
    if (arms.empty()) {
      arms.push_back({spec + "/a", spec, true});
      arms.push_back({spec + "/b", spec, true});
    } else {
      arms.push_back({spec, spec, false});
    }
  }
  return arms;
}

}  // namespace kvant::bench
