// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/child_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace kvant {
namespace {

int in_parent = 0;

TEST(RunInChild, SaysNothingWhereTheProbePasses) {
  EXPECT_EQ(RunInChild([] { return ++in_parent == 1; }, 20), "");
  EXPECT_EQ(in_parent, 0) << "the child's memory is its own";
}

TEST(RunInChild, NamesAWrongResultAnExceptionAndASignal) {
  EXPECT_EQ(RunInChild([] { return false; }, 20), "gave a wrong result");
  EXPECT_EQ(RunInChild([]() -> bool { throw std::runtime_error("no"); }, 20),
            "gave a wrong result");
  const std::string illegal = RunInChild([] { return std::raise(SIGILL) != 0; }, 20);
  EXPECT_NE(illegal.find("was ended by signal 4"), std::string::npos) << illegal;
}

TEST(RunInChild, EndsAProbeThatDoesNot) {
  const auto wait = [] {
    for (;;) pause();
    return true;
  };
  EXPECT_EQ(RunInChild(wait, 1), "took longer than 1 s");
}

// As where a handler of the program would see the crash.
TEST(RunInChild, LeavesTheParentsHandlersOut) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGILL, &ignore, &before);
  const std::string illegal = RunInChild([] { return std::raise(SIGILL) == 0; }, 20);
  sigaction(SIGILL, &before, nullptr);
  EXPECT_NE(illegal.find("was ended by signal 4"), std::string::npos) << illegal;
}

}  // namespace
}  // namespace kvant
