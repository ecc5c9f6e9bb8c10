// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The commands of the kvant program. Each Add function defines one subcommand (options, help) and
// stores what it does in `dispatch`; main parses, runs it and turns kvant::Error into one line on
// stderr and an exit status. Exit status: 0; 1 a check failed; 2 bad usage or bad input.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace kvant::cli {

struct Dispatch {
  std::function<int()> run;  // set by the callback of the subcommand that was named
};

void AddRunCommand(CLI::App& app, Dispatch& dispatch);
void AddChatCommand(CLI::App& app, Dispatch& dispatch);
void AddTokenizeCommand(CLI::App& app, Dispatch& dispatch);
void AddEvalCommand(CLI::App& app, Dispatch& dispatch);
void AddMethodsCommand(CLI::App& app, Dispatch& dispatch);
void AddInspectCommand(CLI::App& app, Dispatch& dispatch);
void AddFetchCommand(CLI::App& app, Dispatch& dispatch);
void AddBenchCommand(CLI::App& app, Dispatch& dispatch);
void AddCalibrateCommand(CLI::App& app, Dispatch& dispatch);

}  // namespace kvant::cli
