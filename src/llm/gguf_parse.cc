// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace kvant::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read without byte swaps");

constexpr std::uint64_t kMaxKeyBytes = 65535;  // the format's own limits
constexpr std::uint64_t kMaxTensorNameBytes = 64;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMinAlignment = 8;
constexpr std::uint64_t kMaxAlignment = 65536;
// Smallest possible entries: they bound a count by the bytes that are left, before anything is
// allocated. Metadata: key length, one key byte, kind, one value byte. Tensor: name length, one
// name byte, n_dims, one dimension, type, offset.
constexpr std::uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Kinds of metadata values as numbered by GGUF.
enum class Kind : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
constexpr std::uint32_t kKindCount = 13;
// Bytes of one value of each kind; for strings and arrays the bytes of the smallest one.
constexpr std::uint64_t kKindBytes[kKindCount] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

struct TensorInfo {
  std::string_view name;
  const WeightTypeInfo* type = nullptr;
  std::vector<std::uint64_t> dims;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // from the start of the tensor data
};

// Walks the bytes front to back. Every read states how many bytes it needs and for what.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Contents Run() {
    ReadHeader();
    ReadMetadata();
    const std::vector<TensorInfo> infos = ReadTensorInfos();
    PlaceTensors(infos);
    return std::move(contents_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kCorruptData,
         "{}: {}; the file is truncated or damaged, fetch or convert it again", name_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint64_t Left() const { return bytes_.size() - pos_; }

  const std::byte* Take(std::uint64_t count, std::string_view what) {
    if (count > Left()) {
      Corrupt("{} needs {} bytes at offset {}, but the file ends after {} bytes", what, count, pos_,
              bytes_.size());
    }
    const std::byte* at = bytes_.data() + pos_;
    pos_ += count;
    return at;
  }

  template <typename T>
  T Read(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof(T), what), sizeof(T));
    return value;
  }

  std::string_view ReadString(std::string_view what) {
    const auto length = Read<std::uint64_t>(what);
    return {reinterpret_cast<const char*>(Take(length, what)), static_cast<std::size_t>(length)};
  }

  void ReadHeader();
  void ReadMetadata();
  GgufValue ReadValue(std::uint32_t kind, std::string_view what);
  GgufArray ReadArray(std::string_view what);
  std::int64_t ReadInteger(Kind kind, std::string_view what);
  std::vector<TensorInfo> ReadTensorInfos();
  TensorInfo ReadTensorInfo(std::uint64_t index);
  std::uint64_t Alignment() const;
  void PlaceTensors(const std::vector<TensorInfo>& infos);
  void RefuseOverlaps(const std::vector<TensorInfo>& infos) const;

  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t pos_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_metadata_ = 0;
  Contents contents_;
};

void Parser::ReadHeader() {
  if (bytes_.empty()) {
    Fail(ErrorCode::kCorruptData, "{}: the file is empty; give a GGUF model file", name_);
  }
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min<std::size_t>(bytes_.size(), 4));
  if (start != "GGUF") {
    Fail(ErrorCode::kCorruptData,
         "{}: the file starts with {} instead of \"GGUF\"; give a GGUF model file", name_,
         Quoted(start));
  }
  pos_ = 4;
  const auto version = Read<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffffu) == 0) {
    Fail(ErrorCode::kUnsupported,
         "{}: big-endian GGUF files are not supported; convert the model to little-endian", name_);
  }
  if (version != 2 && version != 3) {
    Fail(ErrorCode::kUnsupported,
         "{}: GGUF version {} is not supported, only 2 and 3 are; convert the model again", name_,
         version);
  }
  contents_.version = version;
  n_tensors_ = Read<std::uint64_t>("the tensor count");
  n_metadata_ = Read<std::uint64_t>("the metadata count");
  if (n_metadata_ > Left() / kMinMetadataBytes) {
    Corrupt("the header claims {} metadata entries, more than {} bytes can hold", n_metadata_,
            Left());
  }
  if (n_tensors_ > Left() / kMinTensorInfoBytes) {
    Corrupt("the header claims {} tensors, more than {} bytes can hold", n_tensors_, Left());
  }
}

void Parser::ReadMetadata() {
  for (std::uint64_t i = 0; i < n_metadata_; ++i) {
    const std::string_view key = ReadString(fmt::format("the key of metadata entry {}", i));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      Corrupt("the key of metadata entry {} has {} bytes, 1 to {} are allowed", i, key.size(),
              kMaxKeyBytes);
    }
    const std::string what = "metadata " + Quoted(key);
    if (!contents_.key_index.emplace(key, contents_.keys.size()).second) {
      Corrupt("{} is there twice", what);
    }
    const auto kind = Read<std::uint32_t>(what);
    contents_.keys.push_back(key);
    contents_.values.push_back(ReadValue(kind, what));
  }
}

std::int64_t Parser::ReadInteger(Kind kind, std::string_view what) {
  switch (kind) {
    case Kind::kUint8:
      return Read<std::uint8_t>(what);
    case Kind::kInt8:
      return Read<std::int8_t>(what);
    case Kind::kUint16:
      return Read<std::uint16_t>(what);
    case Kind::kInt16:
      return Read<std::int16_t>(what);
    case Kind::kUint32:
      return Read<std::uint32_t>(what);
    case Kind::kInt32:
      return Read<std::int32_t>(what);
    case Kind::kInt64:
      return Read<std::int64_t>(what);
    case Kind::kUint64: {
      const auto value = Read<std::uint64_t>(what);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        Corrupt("{} is {}, larger than any sensible number", what, value);
      }
      return static_cast<std::int64_t>(value);
    }
    case Kind::kBool: {
      const auto value = Read<std::uint8_t>(what);
      if (value > 1)
        Corrupt("{} is a bool with the value {}, only 0 and 1 are allowed", what, value);
      return value;
    }
    default:
      KVANT_CHECK(false && "not an integer kind");
      return 0;
  }
}

GgufValue Parser::ReadValue(std::uint32_t kind, std::string_view what) {
  if (kind >= kKindCount) {
    Corrupt("{} has the unknown kind {}, 0 to {} are known", what, kind, kKindCount - 1);
  }
  switch (static_cast<Kind>(kind)) {
    case Kind::kFloat32:
      return static_cast<double>(Read<float>(what));
    case Kind::kFloat64:
      return Read<double>(what);
    case Kind::kString:
      return ReadString(what);
    case Kind::kArray:
      return ReadArray(what);
    case Kind::kBool:
      return ReadInteger(Kind::kBool, what) != 0;
    default:
      return ReadInteger(static_cast<Kind>(kind), what);
  }
}

GgufArray Parser::ReadArray(std::string_view what) {
  const auto kind = Read<std::uint32_t>(what);
  const auto count = Read<std::uint64_t>(what);
  if (kind >= kKindCount) {
    Corrupt("{} is an array of the unknown kind {}, 0 to {} are known", what, kind, kKindCount - 1);
  }
  if (static_cast<Kind>(kind) == Kind::kArray) {
    Fail(ErrorCode::kUnsupported,
         "{}: {} is an array of arrays, which is not supported; convert the model without it",
         name_, what);
  }
  if (count > Left() / kKindBytes[kind]) {
    Corrupt("{} claims {} items, more than the {} bytes left can hold", what, count, Left());
  }
  const auto size = static_cast<std::size_t>(count);
  if (static_cast<Kind>(kind) == Kind::kString) {
    std::vector<std::string_view> items(size);
    for (std::string_view& item : items) item = ReadString(what);
    return {std::move(items)};
  }
  if (static_cast<Kind>(kind) == Kind::kFloat32 || static_cast<Kind>(kind) == Kind::kFloat64) {
    const bool single = static_cast<Kind>(kind) == Kind::kFloat32;
    std::vector<double> items(size);
    for (double& item : items) item = single ? Read<float>(what) : Read<double>(what);
    return {std::move(items)};
  }
  std::vector<std::int64_t> items(size);
  for (std::int64_t& item : items) item = ReadInteger(static_cast<Kind>(kind), what);
  return {std::move(items)};
}

std::vector<TensorInfo> Parser::ReadTensorInfos() {
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < n_tensors_; ++i) {
    infos.push_back(ReadTensorInfo(i));
    if (!contents_.tensor_index.emplace(infos.back().name, infos.size() - 1).second) {
      Corrupt("tensor {} is there twice", Quoted(infos.back().name));
    }
  }
  return infos;
}

TensorInfo Parser::ReadTensorInfo(std::uint64_t index) {
  TensorInfo info;
  info.name = ReadString(fmt::format("the name of tensor {}", index));
  if (info.name.empty() || info.name.size() > kMaxTensorNameBytes) {
    Corrupt("the name of tensor {} has {} bytes, 1 to {} are allowed", index, info.name.size(),
            kMaxTensorNameBytes);
  }
  const std::string what = "tensor " + Quoted(info.name);
  const auto n_dims = Read<std::uint32_t>(what);
  if (n_dims < 1 || n_dims > kMaxDims) {
    Corrupt("{} has {} dimensions, 1 to {} are allowed", what, n_dims, kMaxDims);
  }
  for (std::uint32_t i = 0; i < n_dims; ++i) info.dims.push_back(Read<std::uint64_t>(what));
  const auto type = Read<std::uint32_t>(what);
  info.offset = Read<std::uint64_t>(what);
  info.type = FindWeightType(type);
  if (info.type == nullptr) {
    std::string allowed;
    for (const WeightTypeInfo& readable : WeightTypes()) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(readable.name);
    }
    Fail(ErrorCode::kUnsupported,
         "{}: {} has the weight type {}, which is not supported; supported: {}; convert the model "
         "to "
         "one of them",
         name_, what, WeightTypeLabel(type), allowed);
  }
  // Bytes of the tensor: rows of whole blocks, every product checked.
  std::uint64_t values = 1;
  for (const std::uint64_t dim : info.dims) {
    if (dim == 0) Corrupt("{} has a dimension of 0", what);
    if (__builtin_mul_overflow(values, dim, &values)) {
      Corrupt("the dimensions of {} multiply beyond 64 bits", what);
    }
  }
  if (info.dims[0] % info.type->block_values != 0) {
    Corrupt("{} has rows of {} values, which {} cannot hold in blocks of {}", what, info.dims[0],
            info.type->name, info.type->block_values);
  }
  if (__builtin_mul_overflow(values / info.type->block_values,
                             std::uint64_t{info.type->block_bytes}, &info.bytes)) {
    Corrupt("the dimensions of {} multiply beyond 64 bits", what);
  }
  return info;
}

std::uint64_t Parser::Alignment() const {
  const auto found = contents_.key_index.find("general.alignment");
  if (found == contents_.key_index.end()) return kDefaultAlignment;
  const auto* value = std::get_if<std::int64_t>(&contents_.values[found->second]);
  if (value == nullptr) Corrupt("general.alignment is not an integer");
  if (*value < static_cast<std::int64_t>(kMinAlignment) ||
      *value > static_cast<std::int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<std::uint64_t>(*value))) {
    Corrupt("general.alignment is {}, a power of two from {} to {} is allowed", *value,
            kMinAlignment, kMaxAlignment);
  }
  return static_cast<std::uint64_t>(*value);
}

void Parser::PlaceTensors(const std::vector<TensorInfo>& infos) {
  const std::uint64_t alignment = Alignment();
  // pos_ is at most the size of an object in memory, so that rounding up cannot overflow.
  const std::uint64_t data_start = (pos_ + alignment - 1) / alignment * alignment;
  contents_.tensors.reserve(infos.size());
  for (const TensorInfo& info : infos) {
    if (info.offset % alignment != 0) {
      Corrupt("tensor {} starts at offset {}, which is not a multiple of the alignment {}",
              Quoted(info.name), info.offset, alignment);
    }
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (__builtin_add_overflow(data_start, info.offset, &begin) ||
        __builtin_add_overflow(begin, info.bytes, &end) || end > bytes_.size()) {
      Corrupt("tensor {} ({} bytes at data offset {}) ends past the end of the file ({} bytes)",
              Quoted(info.name), info.bytes, info.offset, bytes_.size());
    }
    contents_.tensors.push_back({.name = info.name,
                                 .type = info.type->type,
                                 .dims = info.dims,
                                 .bytes = bytes_.subspan(static_cast<std::size_t>(begin),
                                                         static_cast<std::size_t>(info.bytes))});
  }
  RefuseOverlaps(infos);
}

// Tensors that share bytes would let a small file claim any amount of weights.
void Parser::RefuseOverlaps(const std::vector<TensorInfo>& infos) const {
  std::vector<std::size_t> order(infos.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return infos[a].offset < infos[b].offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = infos[order[i - 1]];
    const TensorInfo& after = infos[order[i]];
    if (after.offset - before.offset < before.bytes) {
      Corrupt("tensors {} and {} overlap", Quoted(before.name), Quoted(after.name));
    }
  }
}

}  // namespace

Contents Parse(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).Run();
}

}  // namespace kvant::gguf
