// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A model that lies in no file: what its file would say, and how the rows of its matrices are made when they
// are asked for. GgufFile::FromMade makes it look like any other; who fills it is not known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/gguf.h"
#include "llm/gguf_parse.h"

namespace kvant::gguf {

class MadeFile {
 public:
  /// Writes one row of a matrix in the blocks of its type. Called by several threads at once.
  using MakeRow =
      std::function<void(const GgufTensor& tensor, std::size_t row, std::span<std::byte> out)>;

  /// `path` stands in messages, where a file's path would.
  MadeFile(std::string path, MakeRow make_row)
      : path_(std::move(path)), make_row_(std::move(make_row)) {
    contents_.version = 3;
  }

  /// A view of the text that lives as long as this object.
  std::string_view Keep(std::string text) { return strings_.emplace_back(std::move(text)); }
  /// Keys and names of tensors are given once each.
  void Add(std::string key, GgufValue value);
  void AddVector(std::string name, std::vector<float> values);
  /// Columns are whole blocks of the type.
  void AddMatrix(std::string name, WeightType type, std::uint64_t n_rows, std::uint64_t n_cols);

  const std::string& path() const { return path_; }
  const Contents& contents() const { return contents_; }
  /// Bytes of all tensors.
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  /// Bytes of the largest matrix.
  std::uint64_t largest_matrix() const { return largest_matrix_; }
  /// Gives every matrix the first bytes of `reserved`, [largest_matrix()], as its bytes.
  void PlaceMatrices(std::span<const std::byte> reserved);
  void Row(const GgufTensor& tensor, std::size_t row, std::span<std::byte> out) const {
    make_row_(tensor, row, out);
  }

 private:
  void AddTensor(std::string name, GgufTensor tensor);

  std::string path_;
  MakeRow make_row_;
  // What the views and spans of the contents point to; a deque's items stay where they are.
  std::deque<std::string> strings_;
  std::deque<std::vector<float>> vectors_;
  Contents contents_;
  std::uint64_t tensor_bytes_ = 0;
  std::uint64_t largest_matrix_ = 0;
};

}  // namespace kvant::gguf
