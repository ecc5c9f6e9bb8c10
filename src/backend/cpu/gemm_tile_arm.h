// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The AArch64 instance of GemmTile; only gemm_tile.cc includes this.
#pragma once

#include "backend/cpu/gemm_tile.h"

namespace kvant::gemm_neon {
GemmTileFunction Function();
}  // namespace kvant::gemm_neon
