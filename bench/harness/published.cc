// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/published.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "bench/harness/json_reader.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

void NeedArms(const std::vector<std::string>& names, const PublishedPart& part,
              const std::string& where) {
  for (const std::string& name : names) {
    if (std::count(part.arm_names.begin(), part.arm_names.end(), name) == 1) continue;
    Fail(ErrorCode::kInvalidArgument, "{} names the arm \"{}\"; the arm_names are {}, each once",
         where, name, fmt::join(part.arm_names, ", "));
  }
}

PublishedFigure ParseFigure(const json& object, const std::string& where) {
  ObjectReader reader(object, where);
  PublishedFigure figure;
  figure.prompt = reader.Count("prompt", 1, 1 << 24);
  figure.arm = reader.Text("arm");
  figure.tok_s = reader.Number("tok_s", 0, 1e9);
  figure.tok_s_min = reader.Number("tok_s_min", 0, figure.tok_s);
  figure.tok_s_max = reader.Number("tok_s_max", figure.tok_s, 1e9);
  figure.peak_mb = reader.Number("peak_mb", 0, 1e9);
  figure.against_baseline = reader.Number("against_baseline", 0, 1e9);
  figure.key_ratio = reader.Number("key_ratio", 0, 1e9);
  reader.RefuseOthers();
  return figure;
}

json FigureToJson(const PublishedFigure& figure) {
  return {{"prompt", figure.prompt},
          {"arm", figure.arm},
          {"tok_s", figure.tok_s},
          {"tok_s_min", figure.tok_s_min},
          {"tok_s_max", figure.tok_s_max},
          {"peak_mb", figure.peak_mb},
          {"against_baseline", figure.against_baseline},
          {"key_ratio", figure.key_ratio}};
}

}  // namespace

PublishedPart ParsePublished(const json& object, const std::string& where, std::size_t n_arms) {
  ObjectReader reader(object, where);
  PublishedPart part;
  ObjectReader prompt(reader.At("prompt"), where + ", prompt");
  part.prompt = {prompt.Text("passage"), prompt.Text("instruction")};
  prompt.RefuseOthers();
  part.arm_names = reader.Texts("arm_names");
  NeedArms(part.arm_names, part, where);  // no name twice
  if (part.arm_names.size() != n_arms) {
    Fail(ErrorCode::kInvalidArgument, "{} has {} arm_names for {} arms; give each arm one", where,
         part.arm_names.size(), n_arms);
  }
  ObjectReader same(reader.At("same_tokens"), where + ", same_tokens");
  for (const auto& [title, names] : reader.At("same_tokens").items()) {
    part.same_tokens.push_back({title, same.Texts(title)});
    NeedArms(part.same_tokens.back().arms, part, where + ", same_tokens");
  }
  for (const json& item : reader.List("tables")) {
    ObjectReader table(item, where + ", tables");
    part.tables.push_back({table.Text("title"), table.Texts("arms")});
    table.RefuseOthers();
    NeedArms(part.tables.back().arms, part, where + ", tables");
  }
  ObjectReader figures(reader.At("figures"), where + ", figures");
  part.figures_source = figures.Text("source");
  for (const json& item : figures.List("rows")) {
    part.figures.push_back(ParseFigure(item, where + ", figures"));
  }
  figures.RefuseOthers();
  reader.RefuseOthers();
  return part;
}

json PublishedToJson(const PublishedPart& part) {
  json tables = json::array(), figures = json::array(), same = json::object();
  for (const ArmGroup& group : part.same_tokens) same[group.title] = group.arms;
  for (const ArmGroup& table : part.tables) {
    tables.push_back({{"title", table.title}, {"arms", table.arms}});
  }
  for (const PublishedFigure& figure : part.figures) figures.push_back(FigureToJson(figure));
  return {{"prompt", {{"passage", part.prompt.passage}, {"instruction", part.prompt.instruction}}},
          {"arm_names", part.arm_names},
          {"same_tokens", same},
          {"tables", tables},
          {"figures", {{"source", part.figures_source}, {"rows", figures}}}};
}

}  // namespace kvant::bench
