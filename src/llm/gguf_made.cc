// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/gguf_made.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace kvant::gguf {

void MadeFile::Add(std::string key, GgufValue value) {
  const std::string_view kept = Keep(std::move(key));
  KVANT_CHECK(contents_.key_index.emplace(kept, contents_.keys.size()).second);
  contents_.keys.push_back(kept);
  contents_.values.push_back(std::move(value));
}

void MadeFile::AddTensor(std::string name, GgufTensor tensor) {
  tensor.name = Keep(std::move(name));
  KVANT_CHECK(contents_.tensor_index.emplace(tensor.name, contents_.tensors.size()).second);
  contents_.tensors.push_back(std::move(tensor));
}

void MadeFile::AddVector(std::string name, std::vector<float> values) {
  const std::vector<float>& kept = vectors_.emplace_back(std::move(values));
  const auto bytes = std::as_bytes(std::span(kept));
  tensor_bytes_ += bytes.size();
  AddTensor(std::move(name),
            {.name = {}, .type = WeightType::kF32, .dims = {kept.size()}, .bytes = bytes});
}

void MadeFile::AddMatrix(std::string name, WeightType type, std::uint64_t n_rows,
                         std::uint64_t n_cols) {
  KVANT_CHECK(n_cols % InfoOf(type).block_values == 0);
  const std::uint64_t n_bytes = n_rows * RowBytes(type, n_cols);
  tensor_bytes_ += n_bytes;
  largest_matrix_ = std::max(largest_matrix_, n_bytes);
  AddTensor(std::move(name), {.name = {}, .type = type, .dims = {n_cols, n_rows}, .bytes = {}});
}

void MadeFile::PlaceMatrices(std::span<const std::byte> reserved) {
  for (GgufTensor& tensor : contents_.tensors) {
    if (tensor.dims.size() == 2) {
      tensor.bytes = reserved.first(tensor.dims[1] * RowBytes(tensor.type, tensor.dims[0]));
    }
  }
}

}  // namespace kvant::gguf
