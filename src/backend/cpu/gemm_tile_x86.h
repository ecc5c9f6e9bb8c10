// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The x86 instances of GemmTile; only gemm_tile.cc includes this.
#pragma once

#include "backend/cpu/gemm_tile.h"

namespace kvant {
namespace gemm_avx2 {
GemmTileFunction Function();
}
namespace gemm_avx512 {
GemmTileFunction Function();
}
}  // namespace kvant
