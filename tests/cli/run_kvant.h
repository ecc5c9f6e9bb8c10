// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Runs the program as scripts and people do, for tests from outside.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kvant::test {

struct Outcome {
  int status = -1;
  std::string out, err;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs kvant with these arguments and this text on stdin.
inline Outcome Kvant(std::vector<std::string> arguments, const std::string& input = "") {
  static int counter = 0;
  const std::string base = "cli_" + std::to_string(getpid()) + "_" + std::to_string(counter++);
  std::ofstream(base + ".in", std::ios::binary) << input;
  const pid_t child = fork();
  if (child == 0) {
    dup2(open((base + ".in").c_str(), O_RDONLY), 0);
    dup2(open((base + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open((base + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    arguments.insert(arguments.begin(), KVANT_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(KVANT_PROGRAM, argv.data());
    _exit(127);
  }
  int wait_status = 0;
  waitpid(child, &wait_status, 0);
  Outcome outcome;
  outcome.status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  outcome.out = Slurp(base + ".out");
  outcome.err = Slurp(base + ".err");
  for (const char* suffix : {".in", ".out", ".err"}) std::filesystem::remove(base + suffix);
  return outcome;
}

}  // namespace kvant::test
