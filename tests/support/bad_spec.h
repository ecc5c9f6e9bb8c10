// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A method text that the grammar must refuse, and what the sentence must say.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

#include "kv/spec.h"
#include "kvant/error.h"

namespace kvant::test {

struct BadSpec {
  std::string_view text;
  std::size_t character;  // counted from 1
  std::string_view says;  // part of the message
};

inline void PrintTo(const BadSpec& bad, std::ostream* out) { *out << bad.text; }

inline void ExpectRefusedAt(const BadSpec& bad) {
  try {
    ParseMethodSpec(bad.text);
    FAIL() << "'" << bad.text << "' was accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(message.find("character " + std::to_string(bad.character) + ":"), std::string::npos)
        << message;
    EXPECT_NE(message.find(bad.says), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one sentence, one line";
  }
}

}  // namespace kvant::test
