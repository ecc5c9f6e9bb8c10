// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/codecs/turboquant_mse/turboquant_mse.h"

#include "base/error.h"
#include "kv/families/scalar_lut/scalar_lut.h"

namespace kvant::turboquant_mse {
namespace {

constexpr OptionInfo kOptions[] = {{.name = "bits",
                                    .default_value = "4",
                                    .allowed = "1 to 8",
                                    .meaning = "bits for each coordinate"},
                                   scalar_lut::kScalarOption,
                                   scalar_lut::kSeedOption};

constexpr PresetInfo kPresets[] = {
    {.name = "turboquant_mse",
     .expansion = "k=turboquant_mse,v=turboquant_mse,k_mean=rope,smooth=balanced_pair,sink=4,window=128",
     .meaning = "4-bit codes of one stage, otherwise like turboquant_rvq"}};

constexpr std::string_view kVariants[] = {"bits=1", "bits=2", "bits=3", "bits=5", "bits=6",
                                          "bits=7", "bits=8", "scalar=norm:seed=1"};

std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText> given) {
  auto options = std::make_shared<scalar_lut::Options>();
  options->bits1 = 4;
  options->bits2 = 0;
  for (const OptionText& option : given) {
    if (option.name == "bits") {
      if (option.value.size() != 1 || option.value[0] < '1' || option.value[0] > '8') {
        Fail(ErrorCode::kInvalidArgument, "bits={} is not allowed; allowed: 1 to 8", option.value);
      }
      options->bits1 = static_cast<unsigned>(option.value[0] - '0');
    }
    scalar_lut::ParseSharedOption(option, *options);
  }
  return options;
}

}  // namespace

const CodecRecord& GetCodec() {
  static const CodecRecord kRecord = scalar_lut::MakeRecord({
      .name = "turboquant_mse",
      .summary = "rotation, then one Lloyd-Max code of each coordinate",
      .paper = "TurboQuant, arXiv 2504.19874, algorithm 1",
      .options = kOptions,
      .presets = kPresets,
      .variants = kVariants,
      .parse_config = &ParseConfig});
  return kRecord;
}

}  // namespace kvant::turboquant_mse
