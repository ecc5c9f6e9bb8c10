// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tables of the scalar codecs, for people and for other programs (kvant methods --codebooks).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace kvant::cli {

/// All codebooks for a head_dim (16 to 1024; throws Error otherwise): one stage of 1 to 8 bits, and
/// two stages of 1 to 4 bits each of every kind. [] {kind, bits1, bits2, head_dim, distortion,
/// levels1, bounds1, levels2, bounds2, integer_levels, step}: as kv/families/scalar_lut/codebook.h
/// says, levels in units of rms(x) = |x| / sqrt(head_dim), integer_levels by stored code.
nlohmann::json CodebookRows(std::size_t head_dim);
/// The rows for people: of symmetric lists, the positive half.
std::string CodebookText(const nlohmann::json& rows);

}  // namespace kvant::cli
