// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What --prefill may say and what it then means.
#include "llm/prefill_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kvant {
namespace {

std::string ErrorOf(std::string_view prefill, bool exact, ErrorCode code) {
  try {
    ResolvePrefill(prefill, SupportedIsas().back(), exact);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "no error for " << prefill;
  return {};
}

TEST(PrefillChoice, F32IsAlwaysThereAndNamesItsKernel) {
  for (const Isa isa : SupportedIsas()) {
    for (const bool exact : {false, true}) {
      const PrefillChoice choice = ResolvePrefill("f32", isa, exact);
      EXPECT_EQ(choice.kind, PrefillKind::kF32);
      EXPECT_EQ(choice.name, "f32/" + std::string(IsaName(isa)));
      EXPECT_EQ(choice.reason, "asked for");
    }
  }
}

TEST(PrefillChoice, AutoIsF32WhereResultsMustBeExactOrASlowerKernelIsAskedFor) {
  EXPECT_EQ(ResolvePrefill("auto", SupportedIsas().back(), true).kind, PrefillKind::kF32);
  if (SupportedIsas().size() > 1) {
    const PrefillChoice choice = ResolvePrefill("auto", Isa::kScalar, false);
    EXPECT_EQ(choice.name, "f32/scalar");
    EXPECT_NE(choice.reason.find("scalar"), std::string::npos) << choice.reason;
  }
}

TEST(PrefillChoice, AutoSaysWhatItMeasuredOrWhyItCouldNot) {
  const PrefillChoice choice = ResolvePrefill("auto", SupportedIsas().back(), false);
  if (!WhyNoBf16().empty()) {
    EXPECT_EQ(choice.kind, PrefillKind::kF32);
    EXPECT_NE(choice.reason.find(WhyNoBf16()), std::string::npos) << choice.reason;
  } else {
    EXPECT_NE(choice.reason.find("GFLOP/s"), std::string::npos) << choice.reason;
    EXPECT_EQ(choice.kind == PrefillKind::kBf16, choice.name.rfind("bf16/onednn/", 0) == 0);
  }
  const PrefillChoice again = ResolvePrefill("auto", SupportedIsas().back(), false);
  EXPECT_EQ(again.reason, choice.reason) << "measured once for the process";
}

TEST(PrefillChoice, RefusesWhatCannotBe) {
  const std::string unknown = ErrorOf("int8", false, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.find("auto, f32, bf16"), std::string::npos) << unknown;
  ErrorOf("", false, ErrorCode::kInvalidArgument);
  const std::string exact = ErrorOf("bf16", true, ErrorCode::kInvalidArgument);
  EXPECT_NE(exact.find("exact"), std::string::npos) << exact;
  if (WhyNoBf16().empty()) {
    EXPECT_EQ(ResolvePrefill("bf16", Isa::kScalar, false).kind, PrefillKind::kBf16);
  } else {
    const std::string missing = ErrorOf("bf16", false, ErrorCode::kUnsupported);
    EXPECT_NE(missing.find(WhyNoBf16()), std::string::npos) << missing;
  }
}

}  // namespace
}  // namespace kvant
