// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A stored result as text for a terminal. Pure: what it says is in the JSON or follows from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvant::bench {

/// Verdict, conditions, speed, decode line, memory, checks, command. `result` must be valid
/// (ValidateResult).
std::string RenderText(const nlohmann::json& result);

/// Columns as wide as their widest cell, two blanks between them. The first row is the header.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void AddRow(std::vector<std::string> cells);
  std::string ToString() const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Words of the text in lines of at most `columns`; a longer word has a line of its own.
std::vector<std::string> WrapText(const std::string& text, std::size_t columns);

// Shared with the HTML report, so that both say the same.

/// "523", "98.4", "7.31": three significant digits, all digits of a whole number above 999.
std::string Number(double value);
/// 98362432 -> "98.4": megabytes of 1e6 bytes.
std::string Megabytes(double bytes);
/// "98.4 (97.1-99.0)".
std::string MedianAndRange(const nlohmann::json& row);
/// "1.43x, faster", "no difference seen", "A/A +-1.2 %" for the second baseline arm.
std::string AgainstBaseline(const nlohmann::json& row);
/// "always", "never", "from 4,000 tokens", with the note.
std::string BreakEvenText(const nlohmann::json& fit);
/// One line each: model, machine, build.
std::string ModelLine(const nlohmann::json& result);
/// What must be said of a result of this model: "synthetic weights: ..."; empty for others.
std::string ModelNoticeOf(const nlohmann::json& result);
std::string MachineLine(const nlohmann::json& result);
std::string BuildLine(const nlohmann::json& result);
/// The row of an arm, length and phase; nullptr where there is none.
const nlohmann::json* FindResultRow(const nlohmann::json& result, const std::string& arm,
                                    const nlohmann::json& length, const std::string& phase);

}  // namespace kvant::bench
