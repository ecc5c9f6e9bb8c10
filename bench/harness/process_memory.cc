// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/process_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"

extern char** environ;

namespace kvant::bench {
namespace {

struct Pipe {
  int read_fd = -1, write_fd = -1;

  Pipe() {
    int fds[2] = {-1, -1};
    if (pipe2(fds, O_CLOEXEC) != 0) {
      Fail(ErrorCode::kResourceExhausted, "no pipe to a measuring process could be opened: {}",
           std::strerror(errno));
    }
    read_fd = fds[0];
    write_fd = fds[1];
  }
  ~Pipe() {
    CloseWrite();
    close(read_fd);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseWrite() {
    if (write_fd >= 0) close(write_fd);
    write_fd = -1;
  }
};

pid_t Spawn(const std::vector<std::string>& argv, const Pipe& out, const Pipe& err) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.write_fd, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_fd, 2);
  pid_t pid = -1;
  const int status =
      posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    Fail(ErrorCode::kNotFound, "the measuring process {} could not be started: {}", argv[0],
         std::strerror(status));
  }
  return pid;
}

std::string LastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it printed no reason";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

// Appends what both pipes give until both are closed. Returns false when cancelled before that.
bool Drain(Pipe& out, Pipe& err, std::string& out_text, std::string& err_text,
           const std::atomic<bool>* cancel) {
  std::array<pollfd, 2> fds = {pollfd{out.read_fd, POLLIN, 0}, pollfd{err.read_fd, POLLIN, 0}};
  std::array<char, 65536> bytes = {};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (cancel != nullptr && cancel->load()) return false;
    if (poll(fds.data(), fds.size(), 100) <= 0) continue;  // timeout or signal: look at cancel
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const ssize_t n = read(fds[i].fd, bytes.data(), bytes.size());
      if (n > 0) (i == 0 ? out_text : err_text).append(bytes.data(), static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR)) fds[i].fd = -1;
    }
  }
  return true;
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::uint64_t ParseStatusBytes(const std::string& status, const std::string& key) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size() + 1, key + ":") != 0) continue;
    return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

std::uint64_t ReadStatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::ostringstream text;
  text << file.rdbuf();
  return ParseStatusBytes(text.str(), key);
}

RssAnonSampler::RssAnonSampler() : thread_([this] { Loop(); }) {}

RssAnonSampler::~RssAnonSampler() {
  stop_ = true;
  thread_.join();
}

void RssAnonSampler::Loop() {
  while (!stop_) {
    peak_bytes_ = std::max(peak_bytes_.load(), ReadStatusBytes("RssAnon"));
    ++n_samples_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string CaptureProcess(const std::vector<std::string>& argv, const std::atomic<bool>* cancel) {
  KVANT_CHECK(!argv.empty());
  Pipe out, err;
  const pid_t pid = Spawn(argv, out, err);
  out.CloseWrite();
  err.CloseWrite();
  std::string out_text, err_text;
  if (!Drain(out, err, out_text, err_text, cancel)) {
    kill(pid, SIGTERM);
    WaitFor(pid);
    Fail(ErrorCode::kCancelled, "the benchmark was stopped while a measuring process ran");
  }
  if (const int status = WaitFor(pid); status != 0) {
    Fail(ErrorCode::kCheckFailed, "the measuring process ended with status {}: {}", status,
         LastLine(err_text));
  }
  return out_text;
}

}  // namespace kvant::bench
