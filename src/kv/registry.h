// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Every codec and policy that this build knows, from one explicit line each in codecs/codecs.inc and
// policies/policies.inc. No static constructors: a table that the linker cannot drop.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kv/method.h"

namespace kvant {

/// In the order of codecs.inc.
std::span<const CodecRecord* const> Codecs();
std::span<const PolicyRecord* const> Policies();
/// nullptr where no codec has that name.
const CodecRecord* FindCodec(std::string_view name);
/// Makes a codec of a test known to FindCodec (and so to the grammar and to Method). It is not listed by
/// Codecs(). Not thread-safe; call it before any spec is parsed.
void AddTestCodec(const CodecRecord& codec);
/// nullptr where no preset has that name.
const PresetInfo* FindPreset(std::string_view name);
/// "fp16, bf16" for messages.
std::string CodecNames();
std::string PresetNames();
std::string PolicyNames();

}  // namespace kvant
