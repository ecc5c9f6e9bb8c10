// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace kvant {
namespace {

TEST(Isa, TheScalarOneRunsEverywhereAndTheListIsInOrder) {
  EXPECT_TRUE(IsaSupported(Isa::kScalar));
  const std::span<const Isa> supported = SupportedIsas();
  ASSERT_FALSE(supported.empty());
  EXPECT_EQ(supported.front(), Isa::kScalar);
  EXPECT_TRUE(std::is_sorted(supported.begin(), supported.end()));
  for (const Isa isa : AllIsas()) {
    const bool listed = std::find(supported.begin(), supported.end(), isa) != supported.end();
    EXPECT_EQ(listed, IsaSupported(isa)) << IsaName(isa);
  }
}

TEST(Isa, NamesResolveToThemselvesAndAutoToTheLastSupportedOne) {
  EXPECT_EQ(ResolveIsa("auto"), SupportedIsas().back());
  for (const Isa isa : SupportedIsas()) EXPECT_EQ(ResolveIsa(IsaName(isa)), isa) << IsaName(isa);
}

void ExpectRefused(const std::string& name, ErrorCode code) {
  try {
    ResolveIsa(name);
    ADD_FAILURE() << "'" << name << "' was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    const std::string message = error.what();
    EXPECT_NE(message.find("'" + name + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("choose one of: auto, scalar"), std::string::npos) << message;
  }
}

TEST(Isa, OthersAreRefusedWithWhatIsAllowed) {
  for (const char* name : {"", "avx", "AVX2", "avx512 ", "Neon", "sse"}) {
    ExpectRefused(name, ErrorCode::kInvalidArgument);
  }
  ExpectRefused("cuda", ErrorCode::kUnsupported);
  for (const Isa isa : AllIsas()) {
    if (!IsaSupported(isa)) ExpectRefused(std::string(IsaName(isa)), ErrorCode::kUnsupported);
  }
  // Of another architecture: a known name, without kernels in this build.
  for (const Isa isa : {Isa::kNeon, Isa::kAvx2, Isa::kAvx512}) {
    if (std::ranges::find(AllIsas(), isa) != AllIsas().end()) continue;
    EXPECT_FALSE(IsaSupported(isa)) << IsaName(isa);
    ExpectRefused(std::string(IsaName(isa)), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace kvant
