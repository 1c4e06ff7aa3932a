#include "server/window_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/digest.h"
#include "planner/errors.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"
#include "server/text.h"

namespace routepack::server {
namespace {

// Gathers what is wrong with a header. Violations of all parts are listed
// together; another error is kept for when there are none.
class Findings {
 public:
  void Add(const absl::Status& status) {
    const std::vector<FieldViolation> list = ViolationsOf(status);
    for (const FieldViolation& v : list) bad.Add(v.field, v.description);
    if (!status.ok() && list.empty()) first_.Update(status);
  }
  absl::Status ToStatus() const {
    return bad.empty() ? first_ : bad.ToStatus();
  }

  Violations bad;

 private:
  absl::Status first_;
};

absl::StatusOr<Placement> FindCommitted(const v1::WindowHeader& header,
                                        const WindowSpec& spec,
                                        const PlanStore& store) {
  constexpr char kField[] = "header.current_placement.committed_version";
  const std::string& version = header.current_placement().committed_version();
  absl::StatusOr<PlanRecord> record =
      store.FindPlacement(header.key().job_id(), version);
  if (!record.ok()) {
    return absl::NotFoundError(
        absl::StrCat(kField, ": ", record.status().message()));
  }
  if (record->commit.state != v1::COMMIT_STATE_COMMITTED) {
    return absl::NotFoundError(absl::StrCat(
        kField, ": placement version ", version, " is not committed but ",
        v1::CommitState_Name(record->commit.state)));
  }
  return DecodePlacement(record->plan->placement(), spec.num_layers,
                         spec.num_experts, spec.topology.num_ranks(), kField);
}

absl::StatusOr<Placement> DecodeCurrent(const v1::WindowHeader& header,
                                        const WindowSpec& spec,
                                        const PlanStore& store) {
  const v1::CurrentPlacement& current = header.current_placement();
  switch (current.kind_case()) {
    case v1::CurrentPlacement::kMap:
      return DecodePlacement(current.map(), spec.num_layers, spec.num_experts,
                             spec.topology.num_ranks(),
                             "header.current_placement.map");
    case v1::CurrentPlacement::kCommittedVersion:
      return FindCommitted(header, spec, store);
    default:
      return IdentityPlacement(spec.num_layers, spec.num_experts,
                               spec.topology.num_ranks());
  }
}

}  // namespace

std::string HeaderDigest(const v1::WindowHeader& header) {
  // No maps in the message, so one header has one serialisation.
  std::string bytes;
  if (header.content_digest().empty()) {
    bytes = header.SerializeAsString();
  } else {
    v1::WindowHeader compared = header;
    compared.clear_content_digest();
    bytes = compared.SerializeAsString();
  }
  Digest digest;
  digest.AddString(bytes);
  return digest.Hex();
}

absl::StatusOr<WindowRequest> DecodeRequest(const v1::WindowHeader& header) {
  Findings findings;
  findings.Add(ValidateKey(header.key(), "header.key"));
  if (header.num_samples() == 0) {
    findings.bad.Add("header.num_samples", "must be at least 1, is 0");
  }
  absl::StatusOr<PlanOptions> options = DecodeOptions(header.options());
  findings.Add(options.status());
  absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  findings.Add(spec.status());
  if (options.ok() && spec.ok()) {
    findings.Add(ValidateOptions(*spec, *options));
  }
  CheckLength(header.content_digest(), "header.content_digest",
              kMaxContentDigest, findings.bad);
  CheckLength(header.current_placement().committed_version(),
              "header.current_placement.committed_version", kMaxVersion,
              findings.bad);
  if (absl::Status status = findings.ToStatus(); !status.ok()) return status;
  return WindowRequest{.header = header,
                       .header_digest = HeaderDigest(header),
                       .spec = *std::move(spec),
                       .options = *std::move(options),
                       .participants = {header.participant_ranks().begin(),
                                        header.participant_ranks().end()},
                       .current = {},
                       .current_message = nullptr};
}

absl::Status LoadCurrent(const PlanStore& store, WindowRequest& request) {
  absl::StatusOr<Placement> current =
      DecodeCurrent(request.header, request.spec, store);
  if (!current.ok()) return current.status();
  auto message = std::make_shared<v1::Placement>();
  EncodePlacement(*current, message.get());
  request.current = *std::move(current);
  request.current_message = std::move(message);
  return absl::OkStatus();
}

}  // namespace routepack::server
