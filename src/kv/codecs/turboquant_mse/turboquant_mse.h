// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Codec "turboquant_mse": one Lloyd-Max table of 1 to 8 bits for each coordinate of a rotated row. Bytes,
// scalars and kernels: kv/families/scalar_lut/scalar_lut.h.
#pragma once

#include "kv/method.h"

namespace kvant::turboquant_mse {

const CodecRecord& GetCodec();

}  // namespace kvant::turboquant_mse
