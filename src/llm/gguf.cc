// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "llm/gguf_made.h"
#include "llm/gguf_parse.h"

namespace kvant {
namespace {

// A read-only map of a whole file, or nothing.
class FileMap {
 public:
  FileMap() = default;
  FileMap(void* data, std::size_t size) : data_(data), size_(size) {}
  ~FileMap() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  FileMap(FileMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FileMap& operator=(FileMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  bool mapped() const { return data_ != nullptr; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Descriptor {
  explicit Descriptor(int value) : fd(value) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

[[noreturn]] void FailErrno(const std::string& path, int code) {
  const bool absent = code == ENOENT || code == ENOTDIR;
  Fail(absent ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
       "{}: cannot open the model file ({}); {}", path, std::strerror(code),
       absent ? "give the path of a GGUF file" : "check that this user may read it");
}

void RequireRegular(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  Fail(ErrorCode::kInvalidArgument,
       "{}: this is a {}, not a regular file; give the path of a GGUF file", path,
       S_ISDIR(status.st_mode) ? "folder" : "pipe or device");
}

FileMap MapFile(const std::string& path) {
  struct stat status {};
  // The kind is asked before opening: opening some devices has side effects. O_NONBLOCK keeps a
  // pipe that takes the file's place in between from blocking.
  if (stat(path.c_str(), &status) != 0) FailErrno(path, errno);
  RequireRegular(path, status);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0 || fstat(file.fd, &status) != 0) FailErrno(path, errno);
  RequireRegular(path, status);
  if (status.st_size == 0) return {};  // a map of no bytes is an error of mmap, not of the format
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    Fail(ErrorCode::kResourceExhausted, "{}: cannot map {} bytes of the model file ({})", path,
         size, std::strerror(errno));
  }
  return {data, size};
}

// Addresses that read as zeros and take no memory.
FileMap ReserveZeros(const std::string& name, std::uint64_t n_bytes) {
  if (n_bytes == 0) return {};
  void* data = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    Fail(ErrorCode::kResourceExhausted, "{}: cannot reserve addresses for a matrix of {} bytes ({})",
         name, n_bytes, std::strerror(errno));
  }
  return {data, n_bytes};
}

const char* KindOf(const GgufValue& value) {
  constexpr const char* kNames[] = {"a bool", "an integer", "a floating-point number", "a string",
                                    "an array"};
  return kNames[value.index()];
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  FileMap map;
  std::span<const std::byte> bytes;
  gguf::Contents contents;
  std::unique_ptr<gguf::MadeFile> made;  // owns what the contents point to
  FileMap zeros;                         // the bytes of its matrices

  [[noreturn]] void FailAbsent(std::string_view key) const {
    Fail(ErrorCode::kCorruptData, "{}: metadata \"{}\" is missing; convert the model again", path,
         key);
  }
  [[noreturn]] void FailKind(std::string_view key, const GgufValue& value, const char* want) const {
    Fail(ErrorCode::kCorruptData,
         "{}: metadata \"{}\" is {}, but it must be {}; convert the model again", path, key,
         KindOf(value), want);
  }
  std::int64_t AsInt(std::string_view key, const GgufValue& value) const {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
    FailKind(key, value, "an integer");
  }
  double AsFloat(std::string_view key, const GgufValue& value) const {
    if (const auto* integer = std::get_if<std::int64_t>(&value))
      return static_cast<double>(*integer);
    const auto* number = std::get_if<double>(&value);
    if (number == nullptr) FailKind(key, value, "a number");
    if (!std::isfinite(*number)) {
      Fail(ErrorCode::kCorruptData,
           "{}: metadata \"{}\" is {}, but it must be finite; convert the model again", path, key,
           *number);
    }
    return *number;
  }
  std::string_view AsString(std::string_view key, const GgufValue& value) const {
    if (const auto* text = std::get_if<std::string_view>(&value)) return *text;
    FailKind(key, value, "a string");
  }
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

GgufFile GgufFile::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->map = MapFile(path);
  impl->bytes = impl->map.bytes();
  impl->contents = gguf::Parse(impl->bytes, path);
  return GgufFile(std::move(impl));
}

GgufFile GgufFile::FromBytes(std::span<const std::byte> bytes, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->path = name;
  impl->bytes = bytes;
  impl->contents = gguf::Parse(bytes, name);
  return GgufFile(std::move(impl));
}

GgufFile GgufFile::FromMade(std::unique_ptr<gguf::MadeFile> made) {
  auto impl = std::make_unique<Impl>();
  impl->path = made->path();
  impl->zeros = ReserveZeros(impl->path, made->largest_matrix());
  made->PlaceMatrices(impl->zeros.bytes());
  impl->contents = made->contents();
  impl->made = std::move(made);
  return GgufFile(std::move(impl));
}

const std::string& GgufFile::path() const { return impl_->path; }
std::uint64_t GgufFile::file_bytes() const {
  return impl_->made ? impl_->made->tensor_bytes() : impl_->bytes.size();
}
std::uint32_t GgufFile::version() const { return impl_->contents.version; }

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = impl_->contents.key_index.find(key);
  return found == impl_->contents.key_index.end() ? nullptr
                                                  : &impl_->contents.values[found->second];
}

std::span<const std::string_view> GgufFile::keys() const { return impl_->contents.keys; }

std::int64_t GgufFile::GetInt(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) impl_->FailAbsent(key);
  return impl_->AsInt(key, *value);
}

double GgufFile::GetFloat(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) impl_->FailAbsent(key);
  return impl_->AsFloat(key, *value);
}

std::string_view GgufFile::GetString(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) impl_->FailAbsent(key);
  return impl_->AsString(key, *value);
}

std::int64_t GgufFile::GetIntOr(std::string_view key, std::int64_t fallback) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? fallback : impl_->AsInt(key, *value);
}

double GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? fallback : impl_->AsFloat(key, *value);
}

std::string_view GgufFile::GetStringOr(std::string_view key, std::string_view fallback) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? fallback : impl_->AsString(key, *value);
}

bool GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return fallback;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  impl_->FailKind(key, *value, "a bool");
}

std::span<const GgufTensor> GgufFile::tensors() const { return impl_->contents.tensors; }

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = impl_->contents.tensor_index.find(name);
  return found == impl_->contents.tensor_index.end() ? nullptr
                                                     : &impl_->contents.tensors[found->second];
}

const std::byte* GgufFile::Rows(const GgufTensor& tensor, std::size_t first, std::size_t n,
                                std::vector<std::byte>& scratch) const {
  const std::uint64_t row_bytes = RowBytes(tensor.type, tensor.dims[0]);
  if (!impl_->made) return tensor.bytes.data() + first * row_bytes;
  scratch.resize(n * row_bytes);
  for (std::size_t i = 0; i < n; ++i) {
    impl_->made->Row(tensor, first + i, std::span(scratch).subspan(i * row_bytes, row_bytes));
  }
  return scratch.data();
}

void GgufFile::DropRows(const GgufTensor& tensor, std::size_t first, std::size_t n) const {
  if (!impl_->map.mapped()) return;
  const std::uint64_t row_bytes = RowBytes(tensor.type, tensor.dims[0]);
  const std::span<const std::byte> rows = tensor.bytes.subspan(first * row_bytes, n * row_bytes);
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::byte* base = impl_->bytes.data();
  KVANT_CHECK(rows.data() >= base && rows.data() + rows.size() <= base + impl_->bytes.size());
  // Rounded outwards: a page shared with what lies beside is read from the file again when it is
  // touched.
  const auto offset = static_cast<std::uint64_t>(rows.data() - base);
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t end = offset + rows.size();
  // Advice only: where the kernel refuses it the pages merely stay, and nothing is wrong.
  static_cast<void>(madvise(const_cast<std::byte*>(base) + begin, end - begin, MADV_DONTNEED));
}

}  // namespace kvant
