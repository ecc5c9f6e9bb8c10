// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/codebook_tables.h"

#include <fmt/format.h>

#include "kv/families/scalar_lut/codebook.h"

namespace kvant::cli {
namespace {

using scalar_lut::CodebookKind;

nlohmann::json Describe(std::string_view kind_name, CodebookKind kind, unsigned bits1,
                        unsigned bits2, std::size_t head_dim) {
  const auto book = scalar_lut::CodebookFor(kind, bits1, bits2, head_dim);
  return {{"kind", kind_name},
          {"bits1", bits1},
          {"bits2", bits2},
          {"head_dim", head_dim},
          {"distortion", book->distortion},
          {"levels1", book->levels1},
          {"bounds1", book->bounds1},
          {"levels2", book->levels2},
          {"bounds2", book->bounds2},
          {"integer_levels", book->integer_levels},
          {"step", book->step}};
}

// "name +- a b c ..." in lines of ten; of an ascending symmetric list only what is above zero.
std::string PositiveHalf(std::string_view name, const nlohmann::json& list) {
  std::string text;
  std::size_t in_line = 0;
  for (const nlohmann::json& item : list) {
    const double value = item.get<double>();
    if (value <= 0) continue;
    if (in_line == 0) text += fmt::format("  {:<9}{}", name, text.empty() ? "+-" : "  ");
    text += fmt::format(" {:.5f}", value);
    if (++in_line == 10) {
      text += '\n';
      in_line = 0;
      name = "";
    }
  }
  return in_line == 0 ? text : text + '\n';
}

}  // namespace

nlohmann::json CodebookRows(std::size_t head_dim) {
  nlohmann::json rows = nlohmann::json::array();
  for (unsigned bits = 1; bits <= 8; ++bits) {
    rows.push_back(Describe("one stage", CodebookKind::kNested, bits, 0, head_dim));
  }
  for (const auto& [name, kind] :
       {std::pair{"nested", CodebookKind::kNested}, std::pair{"fitted", CodebookKind::kFitted},
        std::pair{"upstream", CodebookKind::kUpstream}}) {
    for (unsigned bits1 = 1; bits1 <= 4; ++bits1) {
      for (unsigned bits2 = 1; bits2 <= 4; ++bits2) {
        rows.push_back(Describe(name, kind, bits1, bits2, head_dim));
      }
    }
  }
  return rows;
}

std::string CodebookText(const nlohmann::json& rows) {
  std::string text;
  for (const nlohmann::json& row : rows) {
    const unsigned bits2 = row["bits2"].get<unsigned>();
    text += fmt::format(
        "{} {}{}, head_dim {}: D = {:.4e}, codes are integers of {} bits times {:.6e}\n",
        row["kind"].get<std::string>(), row["bits1"].get<unsigned>(),
        bits2 > 0 ? fmt::format("+{}", bits2) : "", row["head_dim"].get<std::size_t>(),
        row["distortion"].get<double>(), row["integer_levels"].size() <= 16 ? 8 : 16,
        row["step"].get<double>());
    text += PositiveHalf("levels 1", row["levels1"]);
    text += PositiveHalf("bounds 1", row["bounds1"]);
    text += PositiveHalf("levels 2", row["levels2"]);
    text += PositiveHalf("bounds 2", row["bounds2"]);
  }
  text +=
      "Levels and bounds in units of rms(x) = |x| / sqrt(head_dim), symmetric about 0 (a bound at "
      "0 is\n"
      "not shown). levels 2 and bounds 2 refine the residual; bounds 2 of nested tables are of x "
      "itself.\n";
  return text;
}

}  // namespace kvant::cli
