// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The method grammar: one line of text that says how a cache is kept, the same on the command line, in
// JSON, in results and in tests.
//
//   spec  = item *( "," item )
//   item  = preset opts | ( "k" | "v" | "values" ) "=" codec opts | "evict=" policy opts
//         | "layers=" range *( "+" range ) layer-opts | key "=" value
//   key   = "sink" | "window" | "exact" | "k_mean" | "smooth" | "profile" | "tail" | "read"
//   opts  = *( ":" name "=" value )      range = N | N "-" N
//   layer-opts = *( ":" ( "k" | "v" ) "=" codec opts )
//
//   fp16                         k=bf16,v=fp16,window=128        fp16,layers=0-1+28:k=bf16
//
// A preset may only come first; items after it replace what it says. Without one the start is fp16.
// Options after a preset go to those of its codecs that know them, else to the keys of the method
// ("turboquant_rvq:bits=3+1:window=256"). What `sink`, `window`, `exact` and `tail` mean: cache.h; `k_mean`,
// `smooth` and `profile` (a path, which may contain ':' where it is an item of its own but no ','):
// transforms/key_transform.h; `read`: attention/attention.h.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/method.h"
#include "kv/transforms/key_transform.h"

namespace kvant {

/// A codec with its options, as written.
struct CodecChoice {
  std::string codec;
  std::vector<OptionText> options;
};
bool operator==(const CodecChoice& a, const CodecChoice& b);

/// What "layers=" says: other codecs for the layers of these ranges (first, last; inclusive).
struct LayerOverride {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  std::optional<CodecChoice> key;
  std::optional<CodecChoice> value;
};
bool operator==(const LayerOverride& a, const LayerOverride& b);

/// The text, taken apart. Not yet bound to a model: ranges and head sizes are checked by Method.
struct MethodSpec {
  CodecChoice key{.codec = "fp16", .options = {}};
  CodecChoice value{.codec = "fp16", .options = {}};
  std::string exact = "fp16";  // 16-bit type of rows that are kept exact: fp16 | bf16
  std::size_t sink = 0;        // first tokens that stay exact, 0 to 64
  std::size_t window = 0;      // recent tokens that stay exact at least; a multiple of 64
  KeyTransformSpec key_transform;
  bool pack_tail = false;      // tail=packed: rows are packed as they come, none is ever exact
  bool dequantize = false;     // read=dequantize: rebuild the key history at every step (baseline)
  std::vector<LayerOverride> layers;

  /// The canonical text: Parse(ToString()) gives an equal spec, and equal specs give the same text.
  std::string ToString() const;
};
bool operator==(const MethodSpec& a, const MethodSpec& b);

/// Throws Error(kInvalidArgument) that gives the character (counted from 1) and lists what is allowed
/// there.
MethodSpec ParseMethodSpec(std::string_view text);

}  // namespace kvant
