// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Texts and the ids that other implementations give them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llm/tokenizer.h"
#include "tests/support/model_path.h"

namespace kvant::test {

/// Every text of tests/data/`name` encodes to its ids, and they decode to it.
inline void ExpectReferenceIds(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream lines(DataPath(name));
  int n = 0;
  for (std::string line; std::getline(lines, line); ++n) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    const std::string text = entry["text"];
    const auto ids = entry["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.Encode(text, entry["special"].get<bool>()), ids) << line.substr(0, 200);
    EXPECT_EQ(tokenizer.Decode(ids), text) << line.substr(0, 200);
  }
  EXPECT_EQ(n, 162);
}

}  // namespace kvant::test
