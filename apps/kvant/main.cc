// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The kvant program: names the commands, runs one, turns errors into one sentence and an exit status.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "apps/kvant/commands.h"
#include "apps/kvant/interrupt.h"
#include "kvant/error.h"
#include "kvant_build_id.h"

namespace kvant::cli {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells count it

int ExitStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCheckFailed:
    case ErrorCode::kInternal: return kExitFailed;
    case ErrorCode::kCancelled: return kExitInterrupted;
    default: return kExitBadInput;
  }
}

int Parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return -1;
  } catch (const CLI::ParseError& error) {
    std::string command = "kvant";
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    fmt::print(stderr, "kvant: {}; '{} --help' lists what is allowed\n", error.what(), command);
    return kExitBadInput;
  }
}

void RefuseUnknownCommand(const CLI::App& app, const std::string& word) {
  if (word.empty() || word[0] == '-') return;
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return;
    if (command->get_group().empty()) continue;  // hidden: for the program itself
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("unknown command '{}'; there are: {}", word, names));
}

int Main(int argc, char** argv) {
  CLI::App app("kvant: compressed KV caches on real models, measured honestly", "kvant");
  app.set_version_flag("--version", fmt::format("kvant {} ({}{})", KVANT_VERSION, KVANT_BUILD_COMMIT,
                                                KVANT_BUILD_DIRTY ? ", modified" : ""));
  app.require_subcommand(1);
  Dispatch dispatch;
  AddRunCommand(app, dispatch);
  AddChatCommand(app, dispatch);
  AddBenchCommand(app, dispatch);
  AddEvalCommand(app, dispatch);
  AddInspectCommand(app, dispatch);
  AddMethodsCommand(app, dispatch);
  AddTokenizeCommand(app, dispatch);
  AddCalibrateCommand(app, dispatch);
  AddFetchCommand(app, dispatch);
  if (argc <= 1) {
    fmt::print(stderr, "{}", app.help());
    return kExitBadInput;
  }
  RefuseUnknownCommand(app, argv[1]);
  if (const int status = Parse(app, argc, argv); status != 0) return status < 0 ? 0 : status;
  InstallInterruptHandler();
  return dispatch.run();
}

}  // namespace
}  // namespace kvant::cli

int main(int argc, char** argv) {
  try {
    return kvant::cli::Main(argc, argv);
  } catch (const kvant::Error& error) {
    fmt::print(stderr, "kvant: {}\n", error.what());
    return kvant::cli::ExitStatus(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvant: unexpected failure: {}; please report this as a bug\n", error.what());
    return kvant::cli::kExitFailed;
  }
}
