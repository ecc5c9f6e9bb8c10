// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Codec "turboquant_rvq": a two-stage residual scalar quantizer of rotated rows. Bytes, scalars and
// kernels: kv/families/scalar_lut/scalar_lut.h; codebooks: codebook.h there; what is published and what is
// ours: README.md beside this file.
#pragma once

#include "kv/method.h"

namespace kvant::turboquant_rvq {

const CodecRecord& GetCodec();

}  // namespace kvant::turboquant_rvq
