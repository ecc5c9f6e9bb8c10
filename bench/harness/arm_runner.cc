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

namespace {

const Arm* FindSpec(const std::vector<Arm>& arms, const std::string& spec) {
  const auto found =
      std::find_if(arms.begin(), arms.end(), [&](const Arm& arm) { return arm.spec == spec; });
  return found == arms.end() ? nullptr : &*found;
}

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Takes away arms that no table shows, and pairs of which one is gone.
void DropUnshown(PublishedPart& part, std::vector<Arm>& arms) {
  const auto is_unshown = [&part](const std::string& name) {
    return std::none_of(part.tables.begin(), part.tables.end(),
                        [&](const ArmGroup& table) { return Has(table.arms, name); });
  };
  std::erase_if(arms, [&](const Arm& arm) { return !arm.is_baseline && is_unshown(arm.name); });
  std::erase_if(part.same_tokens, [&](const ArmGroup& group) {
    return std::any_of(group.arms.begin(), group.arms.end(), is_unshown);
  });
}

}  // namespace

std::vector<Arm> MakePublishedArms(PublishedPart& part, const std::vector<std::string>& specs,
                                   const std::vector<std::string>& extra, bool replace) {
  KVANT_CHECK(specs.size() == part.arm_names.size() && !part.tables.empty());
  std::vector<Arm> arms;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (const Arm* same = FindSpec(arms, specs[i]); same != nullptr) {
      Fail(ErrorCode::kInvalidArgument,
           "the arms {} and {} of the protocol are both \"{}\"; give different methods", same->name,
           part.arm_names[i], specs[i]);
    }
    arms.push_back({part.arm_names[i], specs[i], i == 0});
  }
  ArmGroup& last = part.tables.back();
  if (replace) last.arms = {part.arm_names[0]};
  for (const std::string& spec : extra) {
    if (FindSpec(arms, spec) == nullptr) arms.push_back({spec, spec, false});
    const std::string& name = FindSpec(arms, spec)->name;
    if (!Has(last.arms, name)) last.arms.push_back(name);
  }
  DropUnshown(part, arms);
  part.arm_names.clear();
  for (const Arm& arm : arms) part.arm_names.push_back(arm.name);
  return arms;
}

}  // namespace kvant::bench
