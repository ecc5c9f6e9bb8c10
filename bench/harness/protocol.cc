// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/protocol.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "bench/harness/embedded.h"

namespace kvant::bench {
namespace {

using nlohmann::json;

// Reads the keys of one object and refuses what it was not asked for: a misspelt limit must not
// silently become no limit.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      Fail(ErrorCode::kInvalidArgument, "{} must be a JSON object, not {}", where_,
           object.type_name());
    }
  }

  const json& At(const std::string& key) {
    allowed_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
      Fail(ErrorCode::kInvalidArgument, "{} lacks the key \"{}\"; add it", where_, key);
    }
    return *found;
  }

  std::string Text(const std::string& key) {
    const json& value = At(key);
    if (!value.is_string()) Bad(key, value, "a text");
    return value.get<std::string>();
  }
  bool Bool(const std::string& key) {
    const json& value = At(key);
    if (!value.is_boolean()) Bad(key, value, "true or false");
    return value.get<bool>();
  }
  std::size_t Count(const std::string& key, std::size_t low, std::size_t high) {
    const json& value = At(key);
    if (!value.is_number_integer() || value.get<long long>() < static_cast<long long>(low) ||
        value.get<long long>() > static_cast<long long>(high)) {
      Bad(key, value, fmt::format("a whole number from {} to {}", low, high));
    }
    return value.get<std::size_t>();
  }
  double Number(const std::string& key, double low, double high) {
    const json& value = At(key);
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
      Bad(key, value, fmt::format("a number from {} to {}", low, high));
    }
    return value.get<double>();
  }
  std::vector<std::size_t> Lengths(const std::string& key) {
    const json& value = At(key);
    std::vector<std::size_t> lengths;
    const bool is_list = value.is_array() && !value.empty();
    const bool all_counts =
        is_list && std::all_of(value.begin(), value.end(), [](const json& item) {
          return item.is_number_integer() && item.get<long long>() >= 1 &&
                 item.get<long long>() <= (1 << 24);
        });
    if (!all_counts) Bad(key, value, "a list of prompt lengths in tokens");
    lengths = value.get<std::vector<std::size_t>>();
    if (std::adjacent_find(lengths.begin(), lengths.end(), std::greater_equal<>()) !=
        lengths.end()) {
      Bad(key, value, "an ascending list without repeats");
    }
    return lengths;
  }
  std::vector<std::string> Texts(const std::string& key) {
    const json& value = At(key);
    const bool fine =
        value.is_array() && !value.empty() &&
        std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); });
    if (!fine) Bad(key, value, "a list of texts");
    return value.get<std::vector<std::string>>();
  }

  void RefuseOthers() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(allowed_.begin(), allowed_.end(), key) != allowed_.end()) continue;
      Fail(ErrorCode::kInvalidArgument, "{} has the unknown key \"{}\"; allowed are {}", where_,
           key, fmt::join(allowed_, ", "));
    }
  }

 private:
  [[noreturn]] void Bad(const std::string& key, const json& value, const std::string& wanted) {
    Fail(ErrorCode::kInvalidArgument, "{} has \"{}\": {}; it must be {}", where_, key, value.dump(),
         wanted);
  }

  const json& object_;
  std::string where_;
  std::vector<std::string> allowed_;
};

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
  reader.RefuseOthers();
  return protocol;
}

Protocol LoadProtocol(const std::string& name_or_path) {
  if (name_or_path == "published") {
    Fail(ErrorCode::kUnsupported,
         "--protocol published is not built yet: it needs the method turboquant_rvq_published; use "
         "--protocol honest");
  }
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

json ProtocolToJson(const Protocol& protocol) {
  const ContentionLimits& limits = protocol.contention;
  return {
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
}

}  // namespace kvant::bench
