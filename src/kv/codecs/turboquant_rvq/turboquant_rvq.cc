// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/codecs/turboquant_rvq/turboquant_rvq.h"

#include "base/error.h"
#include "kv/families/scalar_lut/scalar_lut.h"

namespace kvant::turboquant_rvq {
namespace {

using scalar_lut::CodebookKind;

constexpr OptionInfo kOptions[] = {
    {.name = "codebook",
     .default_value = "nested",
     .allowed = "nested, fitted, upstream",
     .meaning = "how stage 2 refines stage 1; upstream is the published one"},
    {.name = "bits",
     .default_value = "2+2",
     .allowed = "1+1 to 4+4",
     .meaning = "bits of stage 1 and stage 2 for each coordinate"},
    scalar_lut::kScalarOption,
    {.name = "encode",
     .default_value = "fused",
     .allowed = "fused, unfused",
     .meaning = "quantize and pack in one pass, or stage by stage; the bytes are the same"},
    scalar_lut::kSeedOption};

constexpr PresetInfo kPresets[] = {
    {.name = "turboquant_rvq",
     .expansion = "k=turboquant_rvq,v=turboquant_rvq,k_mean=rope,smooth=balanced_pair,sink=4,window=128",
     .meaning = "the default: 4-bit nested residual codes of keys and values, attention from codes"},
    {.name = "turboquant_rvq_published",
     .expansion = "k=turboquant_rvq:codebook=upstream:scalar=norm,v=fp16,tail=packed",
     .meaning = "the published method: keys only, its own tables, nothing exact; the measured baseline"}};

constexpr std::string_view kVariants[] = {"bits=1+1",
                                          "bits=2+1",
                                          "bits=3+1",
                                          "bits=3+2",
                                          "bits=3+3",
                                          "bits=4+3",
                                          "bits=4+4",
                                          "codebook=fitted:scalar=matched",
                                          "codebook=fitted:bits=3+2:encode=unfused",
                                          "codebook=upstream:scalar=norm",
                                          "codebook=upstream:bits=4+4:encode=unfused",
                                          "encode=unfused:seed=7",
                                          "scalar=norm"};

CodebookKind ParseCodebook(const std::string& value) {
  if (value == "nested") return CodebookKind::kNested;
  if (value == "fitted") return CodebookKind::kFitted;
  if (value == "upstream") return CodebookKind::kUpstream;
  Fail(ErrorCode::kInvalidArgument, "codebook={} is not known; allowed: nested, fitted, upstream",
       value);
}

bool ParseFused(const std::string& value) {
  if (value == "fused") return true;
  if (value == "unfused") return false;
  Fail(ErrorCode::kInvalidArgument, "encode={} is not known; allowed: fused, unfused", value);
}

// "2+2": two digits from 1 to 4.
void ParseBits(const std::string& value, scalar_lut::Options& options) {
  const auto digit = [](char c) { return c >= '1' && c <= '4'; };
  if (value.size() != 3 || !digit(value[0]) || value[1] != '+' || !digit(value[2])) {
    Fail(ErrorCode::kInvalidArgument,
         "bits={} is not allowed; allowed: STAGE1+STAGE2 with 1 to 4 each, as in 2+2", value);
  }
  options.bits1 = static_cast<unsigned>(value[0] - '0');
  options.bits2 = static_cast<unsigned>(value[2] - '0');
}

std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText> given) {
  auto options = std::make_shared<scalar_lut::Options>();
  for (const OptionText& option : given) {
    if (option.name == "codebook") options->kind = ParseCodebook(option.value);
    if (option.name == "bits") ParseBits(option.value, *options);
    scalar_lut::ParseSharedOption(option, *options);
    if (option.name == "encode") options->fused = ParseFused(option.value);
  }
  return options;
}

}  // namespace

const CodecRecord& GetCodec() {
  static const CodecRecord kRecord = scalar_lut::MakeRecord({
      .name = "turboquant_rvq",
      .summary = "rotation, then two-stage residual codes of each coordinate and one scalar a row",
      .paper = "TurboQuant, arXiv 2504.19874; residual stages as in the TurboQuantRVQ project",
      .options = kOptions,
      .presets = kPresets,
      .variants = kVariants,
      .parse_config = &ParseConfig});
  return kRecord;
}

}  // namespace kvant::turboquant_rvq
