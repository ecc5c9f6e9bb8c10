// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Where the outputs of a weight product go.
#pragma once

#include "llm/weight_matrix.h"
#include "tensor/matrix_view.h"

namespace kvant {

/// One matrix of a product and where its outputs go.
struct ProductTarget {
  const WeightMatrix* weights;  // [n_rows, n_cols]
  MatrixView<float> output;     // [n_tokens, weights->n_rows()]
  bool add = false;             // output += product (residual) instead of output = product
};

}  // namespace kvant
