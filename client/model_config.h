// Model shapes from a Hugging Face config.json: Qwen3-MoE, Qwen3-Next,
// DeepSeek-V2/V3, Moonlight, Kimi Linear, Ling/Bailing (plain and hybrid
// linear) style keys.

#ifndef ROUTEPACK_CLIENT_MODEL_CONFIG_H_
#define ROUTEPACK_CLIENT_MODEL_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "routepack/v1/window.pb.h"

namespace routepack {

// What a config says that a window needs.
struct ModelConfig {
  uint32_t num_layers = 0;   // MoE layers, L
  uint32_t num_experts = 0;  // E
  uint32_t top_k = 0;
  v1::ModelShape shape;  // tp, cp, etp left 0: the mesh's
};

// Parses the text of a config.json. INVALID_ARGUMENT names the key that is
// missing or cannot be used, and the model_type found.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

}  // namespace routepack

#endif  // ROUTEPACK_CLIENT_MODEL_CONFIG_H_
