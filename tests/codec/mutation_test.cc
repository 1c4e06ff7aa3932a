// Mutated messages through the decoders: a deterministic little fuzzer that
// runs with the other tests. Whatever comes back must be a value or a status,
// with no crash, and (in the sanitizer builds) no undefined behaviour.

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "planner/planner.h"
#include "proto/codec/codec.h"
#include "proto/codec/movement_codec.h"
#include "tests/codec/test_messages.h"

namespace routepack {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kRounds = 6000;

// Changes up to four places of a serialised message.
std::string MutateBytes(std::mt19937_64& random, std::string bytes) {
  const uint32_t changes = 1 + Below(random, 4);
  for (uint32_t j = 0; j < changes && !bytes.empty(); ++j) {
    const uint32_t at = Below(random, static_cast<uint32_t>(bytes.size()));
    const uint32_t length = 1 + Below(random, 8);
    switch (Below(random, 5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(random, 8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at / 2, length));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

// One field of a message, set or not.
struct Place {
  Message* message;
  const FieldDescriptor* field;
};

void CollectPlaces(Message* message, std::vector<Place>& places) {
  const Reflection* reflection = message->GetReflection();
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* field = message->GetDescriptor()->field(f);
    places.push_back({message, field});
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_repeated()) {
      const int size = reflection->FieldSize(*message, field);
      for (int j = 0; j < size; ++j) {
        CollectPlaces(reflection->MutableRepeatedMessage(message, field, j),
                      places);
      }
    } else if (reflection->HasField(*message, field)) {
      CollectPlaces(reflection->MutableMessage(message, field), places);
    }
  }
}

uint64_t OddNumber(std::mt19937_64& random) {
  static constexpr uint64_t kOdd[] = {
      0,      1,          2,          7,          255,
      65'535, 65'536,     1u << 26,   0x7FFFFFFF, 0x80000000,
      ~0u,    1ull << 62, ~0ull >> 1, 1ull << 63, ~0ull};
  return kOdd[Below(random, std::size(kOdd))];
}

double OddDouble(std::mt19937_64& random) {
  using Limits = std::numeric_limits<double>;
  const double odd[] = {0,
                        -0.0,
                        1e-300,
                        1e300,
                        -1,
                        Limits::quiet_NaN(),
                        1e15,
                        Limits::infinity(),
                        -Limits::infinity()};
  return odd[Below(random, std::size(odd))];
}

void SetOdd(std::mt19937_64& random, const Place& place) {
  const auto [message, field] = place;
  const Reflection* r = message->GetReflection();
  const uint64_t number = OddNumber(random);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->SetUInt32(message, field, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->SetUInt64(message, field, number);
    case FieldDescriptor::CPPTYPE_INT32:
      return r->SetInt32(message, field, static_cast<int32_t>(number));
    case FieldDescriptor::CPPTYPE_INT64:
      return r->SetInt64(message, field, static_cast<int64_t>(number));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->SetDouble(message, field, OddDouble(random));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->SetBool(message, field, number % 2 == 1);
    case FieldDescriptor::CPPTYPE_ENUM:
      return r->SetEnumValue(message, field, static_cast<int>(number));
    case FieldDescriptor::CPPTYPE_STRING:
      return r->SetString(message, field,
                          std::string(number % 300, static_cast<char>(number)));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      r->MutableMessage(message, field);  // present and empty
      return;
    default:
      return;
  }
}

void AddOdd(std::mt19937_64& random, const Place& place) {
  const auto [message, field] = place;
  const Reflection* r = message->GetReflection();
  const uint64_t number = OddNumber(random);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->AddUInt32(message, field, static_cast<uint32_t>(number));
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->AddUInt64(message, field, number);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->AddDouble(message, field, OddDouble(random));
    case FieldDescriptor::CPPTYPE_STRING:
      return r->AddString(message, field, "odd");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      r->AddMessage(message, field);
      return;
    default:
      return;
  }
}

// Gives one or two fields anywhere in the message odd values.
void MutateFields(std::mt19937_64& random, Message* message) {
  const uint32_t changes = 1 + Below(random, 2);
  for (uint32_t j = 0; j < changes; ++j) {
    std::vector<Place> places;
    CollectPlaces(message, places);
    const Place& place =
        places[Below(random, static_cast<uint32_t>(places.size()))];
    const Reflection* reflection = place.message->GetReflection();
    if (Below(random, 4) == 0) {
      reflection->ClearField(place.message, place.field);
    } else if (!place.field->is_repeated()) {
      SetOdd(random, place);
    } else if (const int size =
                   reflection->FieldSize(*place.message, place.field);
               size > 0 && Below(random, 2) == 0) {
      reflection->SwapElements(place.message, place.field, 0, size - 1);
      reflection->RemoveLast(place.message, place.field);
    } else {
      AddOdd(random, place);
    }
  }
}

// The tiny window with every encoding in it.
v1::Window SeedWindow() {
  v1::Window window = TinyWindow();
  EncodePlacement(
      IdentityPlacement(2, 8, 4),
      window.mutable_header()->mutable_current_placement()->mutable_map());
  EncodeSearchOptions(
      ResolveSearch({}, 16),
      window.mutable_header()->mutable_options()->mutable_search());
  v1::PlanOptions& options = *window.mutable_header()->mutable_options();
  EncodePlacementOptions({}, &options);
  v1::MovementOptions& movement = *options.mutable_movement();
  v1::StateKind& kind = *movement.add_kinds();
  kind.set_bytes(16);
  kind.set_lane_owned(true);
  movement.mutable_buffer()->add_parameters()->set_elements(4);
  for (int p = 0; p < 4; ++p) movement.add_node_of_rank(p / 2);
  const v1::Counts& counts = window.samples(0).counts();
  const std::vector<uint32_t> values(counts.dense().values().begin(),
                                     counts.dense().values().end());
  window.mutable_samples(0)->mutable_counts()->set_u16(
      LittleEndian<uint16_t>(values));
  const auto& other = window.samples(2).counts().dense().values();
  const std::vector<uint32_t> wide(other.begin(), other.end());
  window.mutable_samples(2)->mutable_counts()->set_u32(
      LittleEndian<uint32_t>(wide));
  return window;
}

void DecodeAsRequest(const v1::Window& window, int* accepted) {
  const v1::WindowHeader& header = window.header();
  (void)ValidateKey(header.key(), "header.key");
  const absl::StatusOr<PlanOptions> options = DecodeOptions(header.options());
  // Legal, but too much memory for a test.
  if (uint64_t{header.num_layers()} * header.num_experts() > 1 << 20) {
    (void)DecodeSpec(header);
    return;
  }
  const absl::StatusOr<WindowSpec> spec = DecodeSpec(header);
  if (spec.ok() && options.ok()) (void)ValidateOptions(*spec, *options);
  const absl::StatusOr<Window> decoded = DecodeWindow(window);
  if (!decoded.ok()) {
    EXPECT_FALSE(StatusToWire(decoded.status()).empty());
    return;
  }
  ++*accepted;
  EXPECT_EQ(RequestDigest(*decoded, header).size(), 32u);
}

TEST(Mutation, WindowsOfMutatedBytesDoNotCrash) {
  std::mt19937_64 random(11);
  const std::string seed = SeedWindow().SerializeAsString();
  int accepted = 0;
  for (int j = 0; j < kRounds; ++j) {
    v1::Window window;
    if (window.ParseFromString(MutateBytes(random, seed))) {
      DecodeAsRequest(window, &accepted);
    }
  }
  // Some mutations are harmless (ids, groups, names), most are not.
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds / 2);
}

TEST(Mutation, WindowsWithOddFieldsDoNotCrash) {
  std::mt19937_64 random(12);
  const v1::Window seed = SeedWindow();
  int accepted = 0;
  for (int j = 0; j < kRounds; ++j) {
    v1::Window window = seed;
    MutateFields(random, &window);
    DecodeAsRequest(window, &accepted);
  }
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds * 9 / 10);
}

class MutatedPlan : public testing::Test {
 protected:
  MutatedPlan() : window_(*DecodeWindow(TinyWindow())) {
    const Placement identity = IdentityPlacement(2, 8, 4);
    // Few levels, so that most mutations hit something else.
    const PlanOptions options{.search = {.effort = Effort::kFast, .levels = 3}};
    const absl::StatusOr<Plan> plan = MakePlan(window_, identity, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    message_ = EncodePlan(window_, *plan, options, {});
    EncodePlacement(identity, &current_);
  }

  void Decode(const v1::Plan& message) {
    const absl::StatusOr<Plan> plan = DecodePlan(window_, message);
    if (plan.ok()) (void)ValidatePlan(window_, *plan);
    v1::GetRankPlanRequest request;
    request.set_dp_slot(3);
    request.set_ep_rank(2);
    (void)MakeRankPlan(message, current_, request);
  }

  Window window_;
  v1::Plan message_;
  v1::Placement current_;
};

TEST_F(MutatedPlan, OfMutatedBytesDoesNotCrash) {
  std::mt19937_64 random(13);
  const std::string seed = message_.SerializeAsString();
  int parsed = 0;
  for (int j = 0; j < kRounds; ++j) {
    v1::Plan plan;
    if (!plan.ParseFromString(MutateBytes(random, seed))) continue;
    ++parsed;
    Decode(plan);
  }
  EXPECT_GT(parsed, kRounds / 100);
}

TEST_F(MutatedPlan, WithOddFieldsDoesNotCrash) {
  std::mt19937_64 random(14);
  for (int j = 0; j < kRounds; ++j) {
    v1::Plan plan = message_;
    MutateFields(random, &plan);
    Decode(plan);
  }
}

}  // namespace
}  // namespace routepack
