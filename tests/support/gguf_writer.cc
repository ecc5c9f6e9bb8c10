// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/gguf_writer.h"

#include <fstream>

#include "base/error.h"

namespace kvant::test {

void ByteSink::PutString(std::string_view text) {
  Put(static_cast<std::uint64_t>(text.size()));
  PutBytes(std::as_bytes(std::span(text.data(), text.size())));
}

void ByteSink::PutBytes(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void ByteSink::PadTo(std::size_t alignment) {
  bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
}

void GgufWriter::AddRaw(std::string_view key, std::uint32_t kind,
                        std::span<const std::byte> value) {
  metadata_.PutString(key);
  metadata_.Put(kind);
  metadata_.PutBytes(value);
  ++n_metadata_;
}

void GgufWriter::AddString(std::string_view key, std::string_view text) {
  ByteSink sink;
  sink.PutString(text);
  AddRaw(key, kGgufStringKind, sink.bytes());
}

void GgufWriter::AddStringArray(std::string_view key, const std::vector<std::string>& items) {
  ByteSink sink;
  sink.Put(kGgufStringKind);
  sink.Put(static_cast<std::uint64_t>(items.size()));
  for (const std::string& item : items) sink.PutString(item);
  AddRaw(key, kGgufArrayKind, sink.bytes());
}

void GgufWriter::SetAlignment(std::uint32_t alignment) {
  alignment_ = alignment;
  Add("general.alignment", alignment);
}

void GgufWriter::AddTensor(std::string_view name, std::uint32_t type,
                           const std::vector<std::uint64_t>& dims,
                           std::span<const std::byte> bytes) {
  data_.PadTo(alignment_);
  AddTensorInfo(name, type, dims, data_.size());
  data_.PutBytes(bytes);
}

void GgufWriter::AddTensorInfo(std::string_view name, std::uint32_t type,
                               const std::vector<std::uint64_t>& dims, std::uint64_t offset) {
  tensor_infos_.PutString(name);
  tensor_infos_.Put(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) tensor_infos_.Put(dim);
  tensor_infos_.Put(type);
  tensor_infos_.Put(offset);
  ++n_tensors_;
}

std::vector<std::byte> GgufWriter::Build() const {
  ByteSink file;
  for (const char c : std::string_view("GGUF")) file.Put(c);
  file.Put(version_);
  file.Put(n_tensors_);
  file.Put(n_metadata_);
  file.PutBytes(metadata_.bytes());
  file.PutBytes(tensor_infos_.bytes());
  if (n_tensors_ != 0) file.PadTo(alignment_);
  file.PutBytes(data_.bytes());
  return file.bytes();
}

void WriteFileBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) Fail(ErrorCode::kInvalidArgument, "cannot write {}", path);
}

}  // namespace kvant::test
