// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/protocol.h"

#include <fmt/ranges.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "bench/harness/embedded.h"
#include "bench/harness/json_reader.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

ContentionLimits ParseContention(const json& object, const std::string& where) {
  ObjectReader reader(object, where);
  ContentionLimits limits;
  limits.enforce = reader.Bool("enforce");
  limits.drift = reader.Number("drift_limit", 0, 10);
  limits.steal = reader.Number("steal_limit", 0, 1);
  limits.wait = reader.Number("wait_limit", 0, 1);
  limits.oversubscription = reader.Number("oversubscription_limit", 0, 1);
  reader.RefuseOthers();
  return limits;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) {
    std::vector<std::string_view> names;
    for (const EmbeddedFile& embedded : EmbeddedProtocols()) names.push_back(embedded.name);
    Fail(ErrorCode::kNotFound,
         "--protocol {} is neither a built-in protocol ({}) nor a file that can be read", path,
         fmt::join(names, ", "));
  }
  return content.str();
}

}  // namespace

Protocol ParseProtocol(const json& object, const std::string& source) {
  const std::string where = "protocol " + source;
  ObjectReader reader(object, where);
  Protocol protocol;
  protocol.name = reader.Text("name");
  const std::string mode = reader.Has("mode") ? reader.Text("mode") : "honest";
  if (mode != "honest" && mode != "published") {
    Fail(ErrorCode::kInvalidArgument, "{} has \"mode\": \"{}\"; it must be honest or published",
         where, mode);
  }
  protocol.about = reader.Text("about");
  protocol.arms = reader.Texts("arms");
  protocol.lengths = reader.Lengths("lengths");
  protocol.decode_steps = reader.Count("decode_steps", 1, 1 << 20);
  protocol.rounds = reader.Count("rounds", 1, 1000);
  protocol.warmup_rounds = reader.Count("warmup_rounds", 1, 10);
  ObjectReader full(reader.At("full"), where + ", full");
  protocol.full_lengths = full.Lengths("lengths");
  protocol.full_rounds = full.Count("rounds", 1, 1000);
  full.RefuseOthers();
  if (reader.Has("prefill")) {
    const std::string prefill = reader.Text("prefill");
    if (prefill != "once" && prefill != "every run") {
      Fail(ErrorCode::kInvalidArgument, "{} has \"prefill\": \"{}\"; it must be once or every run",
           where, prefill);
    }
    protocol.prefill_once = prefill == "once";
  }
  protocol.time_limit_s = reader.Number("time_limit_s", 0, 1e6);
  protocol.memory_processes = reader.Bool("memory_processes");
  protocol.contention = ParseContention(reader.At("contention"), where + ", contention");
  ObjectReader degenerate(reader.At("degenerate"), where + ", degenerate");
  protocol.degenerate.window = degenerate.Count("window", 2, 1 << 20);
  protocol.degenerate.max_period =
      degenerate.Count("max_period", 1, protocol.degenerate.window / 2);
  degenerate.RefuseOthers();
  ObjectReader bootstrap(reader.At("bootstrap"), where + ", bootstrap");
  protocol.bootstrap_resamples = bootstrap.Count("resamples", 1, 1000000);
  protocol.bootstrap_confidence = bootstrap.Number("confidence", 0.01, 0.999);
  bootstrap.RefuseOthers();
  if (mode == "published") {
    protocol.published =
        ParsePublished(reader.At("published"), where + ", published", protocol.arms.size());
  }
  reader.RefuseOthers();
  return protocol;
}

Protocol LoadProtocol(const std::string& name_or_path) {
  std::string content;
  for (const EmbeddedFile& embedded : EmbeddedProtocols()) {
    if (embedded.name == name_or_path) content = embedded.content;
  }
  if (content.empty()) content = ReadFile(name_or_path);
  const json object = json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) {
    Fail(ErrorCode::kCorruptData, "protocol {} is not valid JSON; see bench/protocols for examples",
         name_or_path);
  }
  return ParseProtocol(object, name_or_path);
}

RunStyle StyleOf(const Protocol& protocol) {
  RunStyle style;
  style.prefill_once = protocol.prefill_once;
  if (protocol.published) {
    style.repeated = protocol.published->prompt;
    style.stop_at_end = true;
  }
  return style;
}

json ProtocolToJson(const Protocol& protocol) {
  const ContentionLimits& limits = protocol.contention;
  json object = {
      {"name", protocol.name},
      {"about", protocol.about},
      {"arms", protocol.arms},
      {"lengths", protocol.lengths},
      {"decode_steps", protocol.decode_steps},
      {"rounds", protocol.rounds},
      {"warmup_rounds", protocol.warmup_rounds},
      {"full", {{"lengths", protocol.full_lengths}, {"rounds", protocol.full_rounds}}},
      {"time_limit_s", protocol.time_limit_s},
      {"memory_processes", protocol.memory_processes},
      {"contention",
       {{"enforce", limits.enforce},
        {"drift_limit", limits.drift},
        {"steal_limit", limits.steal},
        {"wait_limit", limits.wait},
        {"oversubscription_limit", limits.oversubscription}}},
      {"degenerate",
       {{"window", protocol.degenerate.window}, {"max_period", protocol.degenerate.max_period}}},
      {"bootstrap",
       {{"resamples", protocol.bootstrap_resamples},
        {"confidence", protocol.bootstrap_confidence}}}};
  if (protocol.prefill_once) object["prefill"] = "once";
  if (protocol.published) {
    object["mode"] = "published";
    object["published"] = PublishedToJson(*protocol.published);
  }
  return object;
}

}  // namespace kvant::bench
