// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// `kvant fetch [NAME]`: lists the models of the catalog, or gets one of them.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "apps/kvant/commands.h"
#include "apps/kvant/model_catalog.h"
#include "apps/kvant/model_fetch.h"
#include "apps/kvant/options.h"

namespace kvant::cli {
namespace {

struct FetchOptions {
  std::string name;  // empty: list
  CommonOptions common;
};

nlohmann::json Describe(const CatalogModel& model, const std::string& folder) {
  nlohmann::json packages = nlohmann::json::array();
  for (const ModelPart& part : model.parts) packages.push_back(part.package + "==" + part.version);
  return {{"name", model.name},
          {"title", model.title},
          {"licence", model.licence},
          {"bytes", model.bytes},
          {"sha256", model.sha256},
          {"packages", packages},
          {"path", CachedModelPath(model, folder)},
          {"present", ModelIsCached(model, folder)}};
}

int ListModels(const FetchOptions& options, const std::string& folder) {
  nlohmann::json models = nlohmann::json::array();
  for (const CatalogModel& model : ModelCatalog()) models.push_back(Describe(model, folder));
  if (options.common.json) {
    WriteJson(options.common, {{"models", models}});
    return 0;
  }
  for (const auto& model : models) {
    std::fputs(fmt::format("{:<20} {:>5} MB  {:<8} {:<20} {}\n", model["name"].get<std::string>(),
                           model["bytes"].get<std::uint64_t>() / 1000000,
                           model["present"].get<bool>() ? "present" : "-",
                           model["licence"].get<std::string>(), model["title"].get<std::string>())
                   .c_str(),
               stdout);
  }
  std::fputs(fmt::format("in {}; get one with: kvant fetch NAME\n", folder).c_str(), stdout);
  return 0;
}

int FetchOne(const FetchOptions& options, const std::string& folder) {
  const CatalogModel& model = FindCatalogModel(options.name);
  const auto log = [&](const std::string& line) {
    if (!options.common.quiet) std::fputs(fmt::format("kvant: {}\n", line).c_str(), stderr);
  };
  if (!model.notice.empty()) {  // terms are stated even when quiet
    std::fputs(fmt::format("kvant: {}.\n", model.notice).c_str(), stderr);
  }
  const bool show_bars = !options.common.quiet && isatty(STDERR_FILENO) == 1;
  const FetchOutcome outcome =
      FetchModel(model, {.folder = folder, .show_bars = show_bars, .log = log});
  nlohmann::json described = Describe(model, folder);
  described["fetched"] = outcome == FetchOutcome::kFetched;
  if (options.common.json) {
    WriteJson(options.common, {{"models", nlohmann::json::array({described})}});
  } else {
    std::fputs(fmt::format("{} {}\n", described["path"].get<std::string>(),
                           outcome == FetchOutcome::kFetched ? "fetched and verified"
                                                             : "was there and is intact")
                   .c_str(),
               stdout);
  }
  return 0;
}

}  // namespace

void AddFetchCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<FetchOptions>();
  CLI::App* command =
      app.add_subcommand("fetch", "List the models that can be fetched, or fetch and verify one");
  command->add_option("name", options->name, "Model to fetch; without it the models are listed");
  command->add_flag("--quiet", options->common.quiet, "No progress");
  AddJsonOption(*command, options->common);
  command->callback([options, &dispatch] {
    dispatch.run = [options] {
      const std::string folder = ModelCacheFolder();
      return options->name.empty() ? ListModels(*options, folder) : FetchOne(*options, folder);
    };
  });
}

}  // namespace kvant::cli
