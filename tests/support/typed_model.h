// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Options of a tiny model whose matrices all have one weight type.
#pragma once

#include "tests/support/tiny_model.h"

namespace kvant::test {

/// Wide enough that every row is whole blocks of the type, and otherwise as small as the default.
inline TinyModelOptions ModelOfType(WeightType type) {
  TinyModelOptions options;
  options.embedding_type = options.attention_type = type;
  options.feed_forward_type = options.head_type = type;
  const std::size_t block = InfoOf(type).block_values;
  if (block > 32) {
    options.n_embd = options.n_ff = block;
    options.head_dim = block / options.n_q_head;
  }
  return options;
}

}  // namespace kvant::test
